"""Agent programs in environments: by answers, by tools, as commands; and their rows."""

import asyncio
import json
import sys
import threading
import time
from contextlib import suppress

import aiohttp
import numpy as np
import openai
import pytest
from scripted_engine import ScriptedEngine, tokenizer
from vault import VAULT

from ludic_gym.errors import ClientError, EpisodeError, PromptTooLong
from ludic_gym.parsers import xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.tools.mcp_client import mcp_tools
from ludic_gym.types import Sampling, Task
from ludic_train.agents.gateway import Gateway
from ludic_train.agents.policies import AgentPolicies, agent_episode
from ludic_train.engine.client import LocalChatClient
from ludic_train.models.tiny import make_tiny_model
from ludic_train.rows import trajectory_from

ARITHMETIC = Task(env_id="ludic/Arithmetic-v0", seed=1, sampling=Sampling(seed=3, max_tokens=12))
FOUR = Task(
    env_id="ludic/ConnectFour-v0", seed=1, max_turns=3, sampling=Sampling(seed=3, max_tokens=8)
)


@pytest.fixture(scope="module")
def client():
    made = tokenizer(False)
    # Without a cache of prefixes, by which equal requests could differ in their last bits.
    return LocalChatClient(make_tiny_model(made), made, prefix_cache_bytes=0)


@pytest.fixture
async def gateway(client):
    made = Gateway(client, tokenizer(False), max_positions=client.max_positions, deadline_s=30)
    async with made.running() as running:
        yield running


def dialog(task):
    system = [{"role": "system", "content": task.system_prompt}] if task.system_prompt else []
    return [*system, {"role": "user", "content": task.prompt}]


async def said(task, messages, **fields):
    async with openai.AsyncOpenAI(base_url=task.base_url, api_key="x") as client:
        made = await client.chat.completions.create(model="m", messages=messages, **fields)
    return made.choices[0].message


async def answering(task):
    """One question, one answer."""
    return (await said(task, dialog(task))).content


async def acting(task):
    """A dialog in which every reply is an action."""
    messages = dialog(task)
    while "over" not in messages[-1]["content"]:
        reply = (await said(task, messages)).content
        messages.append({"role": "assistant", "content": reply})
        observation = await task.call("act", {"action": reply})
        messages.append({"role": "user", "content": observation})


def same(one, other):
    assert one.input_ids.tolist() == other.input_ids.tolist()
    for name in ("action_mask", "behavior_logprobs", "versions", "steps", "weight"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize(("task", "agent"), [(ARITHMETIC, answering), (FOUR, acting)])
async def test_rows_equal_those_of_a_chat_policy_to_the_bit(client, gateway, task, agent):
    played = trajectory_from(await agent_episode(task, agent, gateway))
    made = run_episodes([task], lambda env: ChatPolicy(client))
    (known,) = [trajectory_from(e.rollouts[0]) async for e in made]
    assert played.rewards.tolist() == known.rewards.tolist()
    assert len(played.rows) == len(known.rows) == 1
    same(played.rows[0], known.rows[0])


async def test_a_program_calls_the_tools_of_the_environment_and_then_acts(gateway):
    async def opening(task):
        await answering(task)
        key = task.prompt.partition("Key: ")[2].partition(".")[0]
        return await task.call("open_vault", {"key": int(key)})

    rollout = await agent_episode(Task(env_id=VAULT, seed=1), opening, gateway)
    assert (rollout.total_reward, len(rollout.steps)) == (1.0, 1)


class Object:
    """An agent with state of its own, as frameworks make them."""

    async def __call__(self, task):
        return await answering(task)


async def test_an_object_with_an_asynchronous_call_plays_like_a_function(client, gateway):
    rollouts = [await agent_episode(ARITHMETIC, agent, gateway) for agent in (Object(), answering)]
    one, other = (rollout.steps[-1].decision.action for rollout in rollouts)
    assert one == other


PROGRAM = """
import json, os, sys, urllib.request
body = {"messages": [{"role": "user", "content": sys.stdin.read()}]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode())
made = json.load(urllib.request.urlopen(request))
print(made["choices"][0]["message"]["content"])
"""


async def test_a_command_answers_by_its_output(tmp_path):
    path = tmp_path / "agent.py"
    path.write_text(PROGRAM)
    engine = ScriptedEngine(lambda text: "so <answer>7</answer>", tokenizer())
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        rollout = await agent_episode(
            ARITHMETIC, f"{sys.executable} {path}", gateway, parser=xml_tag_parser("answer")
        )
    (step,) = rollout.steps
    assert (step.decision.action, len(step.decision.completions)) == ("7", 1)


def caller(name, arguments):
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>{call}</tool_call>"


async def test_tools_of_the_environment_are_actions_and_later_calls_join_the_last_turn():
    script = iter([caller("list_accounts", {}), caller("finish", {}), "All done."])
    engine = ScriptedEngine(lambda text: next(script), tokenizer())

    async def agent(task):
        messages = dialog(task)
        async with mcp_tools(task.mcp_url) as tools:
            named = {tool.name: tool for tool in tools}
            while True:
                message = await said(task, messages, tools=[tool.schema for tool in tools])
                messages.append(message.model_dump(exclude_none=True))
                if not message.tool_calls:
                    return
                for call in message.tool_calls:
                    arguments = json.loads(call.function.arguments)
                    result = await named[call.function.name].function(**arguments)
                    made = {"role": "tool", "tool_call_id": call.id, "content": result}
                    messages.append(made)

    task = Task(env_id="ludic/ToolCalls-v0", seed=0)
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        rollout = await agent_episode(task, agent, gateway)
    assert [len(step.decision.completions) for step in rollout.steps] == [1, 2]
    assert rollout.steps[1].terminated
    (row,) = trajectory_from(rollout).rows
    sampled = [i for each in engine.sampled for i in each.completion_ids]
    assert row.input_ids[row.action_mask].tolist() == sampled


async def test_tools_by_http(gateway):
    async def agent(task):
        async with aiohttp.ClientSession() as http:
            async with http.get(task.tools_url) as response:
                assert (await response.json())["tools"] == list(task.tools)
            wrong = http.post(f"{task.tools_url}/act", json={"action": 3})
            async with wrong as response:
                assert (await response.json())["is_error"]
            async with http.post(f"{task.tools_url}/act", json={"action": "4"}) as response:
                assert "1 2 3 4 5 6 7" in (await response.json())["result"]

    rollout = await agent_episode(FOUR, agent, gateway)
    assert [step.decision.action for step in rollout.steps] == ["4", None]
    assert rollout.steps[-1].info["truncation_reason"] == "agent_ended"


async def test_an_agent_that_fails_at_once_fails_the_episode_and_later_truncates_it(gateway):
    async def broken(task):
        raise ValueError("no such model")

    async def later(task):
        await said(task, dialog(task))
        raise ValueError("cannot read the reply")

    with pytest.raises(EpisodeError, match="no such model"):
        await agent_episode(ARITHMETIC, broken, gateway)
    with pytest.raises(EpisodeError, match="code 3"):
        await agent_episode(ARITHMETIC, f"{sys.executable} -c 'exit(3)'", gateway)
    rollout = await agent_episode(FOUR, later, gateway)
    assert rollout.steps[-1].info["truncation_reason"] == "agent_failed"
    assert gateway.sessions == {}


class Failing(ScriptedEngine):
    """Replies once, and then has no server."""

    async def continued(self, prompt_ids, sampling):
        if self.sampled:
            raise ClientError("status 503")
        return await super().continued(prompt_ids, sampling)


@pytest.mark.parametrize("answers", [None, ValueError("no reply")])
async def test_an_agent_whose_server_fails_is_not_to_blame(answers):
    async def agent(task):
        await said(task, dialog(task))
        with suppress(openai.APIError):
            async with openai.AsyncOpenAI(
                base_url=task.base_url, api_key="x", max_retries=0
            ) as client:
                await client.chat.completions.create(model="m", messages=dialog(task), seed=2)
        if answers is not None:
            raise answers

    engine = Failing(lambda prompt: "4", tokenizer(False))
    async with Gateway(engine, tokenizer(False), deadline_s=30).running() as gateway:
        with pytest.raises(ClientError, match="status 503"):
            await agent_episode(FOUR, agent, gateway)


async def test_an_agent_whose_first_prompt_is_too_long_is_an_end_by_the_model():
    class Short(ScriptedEngine):
        async def continued(self, prompt_ids, sampling):
            raise PromptTooLong("900 tokens")

    engine = Short(lambda prompt: "4", tokenizer(False))
    async with Gateway(engine, tokenizer(False), deadline_s=30).running() as gateway:
        played = run_episodes([ARITHMETIC], AgentPolicies(gateway, answering))
        (episode,) = [episode async for episode in played]
    assert (episode.blame, episode.rollouts) == ("model", ())


async def test_a_program_that_hangs_is_killed(client, tmp_path):
    mark = tmp_path / "alive"
    sleeping = f"import time, pathlib; time.sleep(1.5); pathlib.Path({str(mark)!r}).touch()"
    async with Gateway(client, tokenizer(False), deadline_s=0.3).running() as gateway:
        rollout = await agent_episode(FOUR, f'{sys.executable} -c "{sleeping}"', gateway)
    assert rollout.steps[-1].info["truncation_reason"] == "agent_deadline"
    assert not mark.exists()


async def test_many_episodes_at_once(client, gateway):
    tasks = [
        Task(env_id="ludic/Arithmetic-v0", seed=i, sampling=Sampling(seed=i, max_tokens=5))
        for i in range(12)
    ]
    played = run_episodes(tasks, AgentPolicies(gateway, answering))
    rows = [trajectory_from(e.rollouts[0]).rows async for e in played]
    assert [len(each) for each in rows] == [1] * 12


def test_an_agent_that_hangs_does_not_hold_up_the_end_of_the_loop(client):
    go_on = threading.Event()

    def hangs(task):
        go_on.wait(60)

    async def given_up():
        async with Gateway(client, tokenizer(False), max_positions=64).running() as gateway:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await agent_episode(ARITHMETIC, hangs, gateway)

    start = time.monotonic()
    asyncio.run(given_up())
    go_on.set()
    assert time.monotonic() - start < 30
