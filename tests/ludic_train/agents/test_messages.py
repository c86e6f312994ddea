"""Anthropic's dialect, by its JSON."""

import copy
import json
import re

from scripted_engine import ScriptedEngine, tokenizer

from ludic_gym.types import Sampling
from ludic_train.agents.gateway import Gateway
from ludic_train.engine.client import LocalChatClient
from ludic_train.errors import EngineError
from ludic_train.models.tiny import make_tiny_model

TOOL = {"name": "add", "description": "Add.", "input_schema": {"type": "object", "properties": {}}}
QUESTION = {"role": "user", "content": [{"type": "text", "text": "1 + 2?"}]}
FIELDS = {"model": "claude", "max_tokens": 99, "system": "Be brief.", "tools": [TOOL]}


async def post(http, gateway, session, body, path="/v1/messages"):
    url = gateway.root_url(session).split("/s/")[0] + path
    async with http.post(url, json=body, headers={"x-api-key": session.id}) as response:
        return response.status, await response.text()


def events(text):
    """Name and data of each event."""
    pairs = [part.split("\n") for part in text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data[6:])) for name, data in pairs]


async def test_a_tool_is_called_and_its_result_continues_the_row(gateway, http):
    session = gateway.open()
    status, text = await post(http, gateway, session, {**FIELDS, "messages": [QUESTION]})
    made = json.loads(text)
    assert status == 200
    said, called = made["content"]
    assert (made["stop_reason"], said["text"], called["name"]) == ("tool_use", "I  add.", "add")
    assert called["input"] == {"a": 1, "b": 2}
    result = {"type": "tool_result", "tool_use_id": called["id"], "content": "3"}
    turn = {"role": "user", "content": [result]}
    body = {
        **FIELDS,
        "messages": [QUESTION, {"role": "assistant", "content": made["content"]}, turn],
    }
    status, text = await post(http, gateway, session, body)
    made = json.loads(text)
    assert (made["stop_reason"], made["content"][0]["text"]) == ("end_turn", "The sum is 3.")
    assert (session.history.continued, session.history.begun) == (1, 1)
    first, second = (call.completion for call in session.calls)
    assert made["usage"]["input_tokens"] == len(second.prompt_ids)
    status, text = await post(http, gateway, session, body, "/v1/messages/count_tokens")
    assert json.loads(text) == {"input_tokens": len(second.prompt_ids)}
    assert second.prompt_ids[: len(first.prompt_ids)] == first.prompt_ids


async def test_events_make_the_same_message(gateway, http):
    session = gateway.open()
    body = {**FIELDS, "messages": [QUESTION], "stream": True}
    _, text = await post(http, gateway, session, body)
    found = events(text)
    names = [name for name, _ in found]
    assert (names[0], names[-2:]) == ("message_start", ["message_delta", "message_stop"])
    deltas = [data["delta"] for name, data in found if name == "content_block_delta"]
    assert "".join(d.get("text", "") for d in deltas) == "I  add."
    assert json.loads("".join(d.get("partial_json", "") for d in deltas)) == {"a": 1, "b": 2}
    kinds = [d["content_block"]["type"] for name, d in found if name == "content_block_start"]
    assert kinds == ["text", "tool_use"]
    assert found[-2][1]["delta"]["stop_reason"] == "tool_use"


async def test_a_thought_comes_as_a_block_of_its_own(http):
    made = copy.copy(tokenizer())
    made.chat_template += "{# </think> #}"
    engine = ScriptedEngine(lambda text: "<think>\nhm\n</think>\n\nfour", made)
    body = {"model": "m", "messages": [QUESTION]}
    async with Gateway(engine, made).running() as gateway:
        session = gateway.open()
        _, text = await post(http, gateway, session, body)
        thought, said = json.loads(text)["content"]
        assert (thought["thinking"], said["text"]) == ("hm", "four")
        _, text = await post(http, gateway, session, {**body, "stream": True})
        kinds = [d["delta"]["type"] for name, d in events(text) if name == "content_block_delta"]
        assert kinds == ["thinking_delta", "signature_delta", "text_delta"]
        # A client may leave the thought out of its history.
        reply = {"role": "assistant", "content": [said]}
        await post(http, gateway, session, {**body, "messages": [QUESTION, reply, QUESTION]})
        assert session.history.continued == 1


async def test_errors_have_the_form_of_the_dialect(gateway, http):
    session = gateway.open()
    image = {"type": "image", "source": {}}
    turn = {"role": "user", "content": [image]}
    status, text = await post(http, gateway, session, {"messages": [turn]})
    error = json.loads(text)
    assert (status, error["type"], error["error"]["type"]) == (
        400,
        "error",
        "invalid_request_error",
    )


async def test_the_stop_sequence_that_ended_a_text_is_named(http):
    made = tokenizer()
    client = LocalChatClient(make_tiny_model(made), made)
    async with Gateway(client, made).running() as gateway:
        session = gateway.open(sampling=Sampling(temperature=0, max_tokens=40))
        body = {"model": "m", "messages": [QUESTION]}
        _, text = await post(http, gateway, session, body)
        whole = json.loads(text)["content"][0]["text"]
        stop = re.search(r"[ -~]{2}", whole)[0]
        for fields in ({}, {"stream": True}):
            stops = {"stop_sequences": ["not in it", stop]}
            _, text = await post(http, gateway, session, {**body, **stops, **fields})
            ended = events(text)[-2][1]["delta"] if fields else json.loads(text)
            assert (ended["stop_reason"], ended["stop_sequence"]) == ("stop_sequence", stop)
            assert session.calls[-1].content == whole[: whole.index(stop)]
        _, text = await post(http, gateway, session, {**body, "stop_sequences": ["not in it"]})
        assert json.loads(text)["stop_sequence"] is None


async def test_an_engine_that_fails_is_an_error_of_the_server_and_not_final(gateway, engine, http):
    sample = engine.continued

    async def failing(prompt_ids, sampling):
        raise EngineError("the model's logits are not finite")

    engine.continued = failing
    session = gateway.open()
    body = {"model": "m", "messages": [QUESTION], "stream": True}
    status, text = await post(http, gateway, session, body)
    assert (status, json.loads(text)["type"], "not finite" in text) == (502, "error", True)
    engine.continued = sample
    status, _ = await post(http, gateway, session, body)
    assert status == 200
