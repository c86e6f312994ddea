"""OpenEnv's TrainingTrace, written and read; and a gateway of its own process."""

import asyncio
import json

import openai
import pytest
from aiohttp.test_utils import TestClient, TestServer
from scripted_engine import ScriptedEngine, tokenizer

from ludic_gym.types import Decision, Rollout, Step, Task
from ludic_train.agents.gateway import Gateway
from ludic_train.agents.trace import completions_of, trace_from_json, trace_of, trace_to_json
from ludic_train.errors import UntrainableRollout
from ludic_train.rows import trajectory_from

TURN = {
    "node_id": "a",
    "prompt_token_ids": [1, 2],
    "completion_token_ids": [3],
    "per_token_logps": [-0.5],
    "loss_mask": [0, 0, 1],
    "request": {"any": [1, {"b": None}]},
    "response": {},
    "metadata": {"version": 7},
}


def trace(**changes):
    return json.dumps({"schema_version": 1, "turns": [{**TURN, **changes}]})


def row_of(completions):
    step = Step(observation="", decision=Decision(action="", completions=completions), reward=0.0)
    (row,) = trajectory_from(Rollout(task=Task(env_id="x"), steps=(step,))).rows
    return row


def test_a_trace_of_another_producer_is_read_and_written_without_loss():
    found = trace_from_json(trace())
    assert json.loads(trace_to_json(found)) == json.loads(trace())
    (completion,) = completions_of(found)
    assert (completion.prompt_ids, completion.logprobs) == ((1, 2), (-0.5,))
    # Turns without a loss are context of others.
    assert completions_of(trace_from_json(trace(loss_mask=[0, 0, 0]))) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"loss_mask": [0, 0]},
        {"loss_mask": [0, 0, 2]},
        {"per_token_logps": []},
        {"per_token_logps": [None]},
        {"node_id": ""},
        {"prompt_token_ids": [-1, 2]},
        {"prompt_token_ids": ["1", 2]},
        {"further": 1},
    ],
)
def test_a_wrong_trace_is_refused(changes):
    with pytest.raises(UntrainableRollout):
        trace_from_json(trace(**changes))


def test_another_version_and_a_repeated_node_are_refused():
    with pytest.raises(UntrainableRollout, match="version 1"):
        trace_from_json('{"schema_version": 2, "turns": []}')
    twice = json.dumps({"turns": [TURN, TURN]})
    with pytest.raises(UntrainableRollout, match="twice"):
        trace_from_json(twice)


def test_a_turn_that_is_learned_in_parts_is_refused():
    parts = trace(completion_token_ids=[3, 4], per_token_logps=[-1.0, -1.0], loss_mask=[0, 0, 1, 0])
    with pytest.raises(UntrainableRollout, match="in parts"):
        completions_of(trace_from_json(parts))


async def said(url, key):
    async with openai.AsyncOpenAI(base_url=url, api_key=key) as client:
        messages = [{"role": "user", "content": "hi"}]
        for _ in range(2):
            made = await client.chat.completions.create(model="m", messages=messages)
            messages.append({"role": "assistant", "content": made.choices[0].message.content})
            messages.append({"role": "user", "content": "on"})


async def test_a_session_and_its_trace_are_the_same_row():
    engine = ScriptedEngine(lambda text: "fine", tokenizer())
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        session = gateway.open()
        await said(gateway.base_url(session), "x")
    direct = row_of(tuple(call.completion for call in session.calls))
    read = completions_of(trace_from_json(trace_to_json(trace_of(session.calls))))
    made = row_of(read)
    for name in ("input_ids", "action_mask", "behavior_logprobs", "versions"):
        assert getattr(made, name).tolist() == getattr(direct, name).tolist()


async def test_sessions_are_opened_and_closed_with_the_token(tmp_path):
    engine = ScriptedEngine(lambda text: "fine", tokenizer())
    gateway = Gateway(engine, engine.tokenizer, token="secret", out=tmp_path)
    headers = {"Authorization": "Bearer secret"}
    async with gateway.running(), TestServer(gateway.app()) as server, TestClient(server) as http:
        assert (await http.post("/sessions")).status == 401
        opened = await (await http.post("/sessions", headers=headers)).json()
        await said(opened["base_url"], opened["key"])
        path = f"/sessions/{opened['key']}"
        assert len((await (await http.get(path, headers=headers)).json())["turns"]) == 2
        for reward in (b'"x"', b"NaN", b"-Infinity", b"1e999", b"1" + b"0" * 400):
            data = b'{"reward": ' + reward + b"}"
            wrong = await http.post(f"{path}/close", data=data, headers=headers)
            assert wrong.status == 400, reward
        closed = await http.post(f"{path}/close", json={"reward": 0.5}, headers=headers)
        assert closed.status == 200
        assert (await http.get(path, headers=headers)).status == 401
    (file,) = await asyncio.to_thread(lambda: list(tmp_path.iterdir()))
    written = json.loads(file.read_text())
    assert written["reward"] == 0.5
    assert len(row_of(completions_of(trace_from_json(json.dumps(written["trace"])))).input_ids)
    assert opened["key"] not in file.name
