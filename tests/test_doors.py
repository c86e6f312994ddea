"""One model earns what the oracle earns in every environment, by every way to play."""

import asyncio
import json
import math
from contextvars import ContextVar
from dataclasses import replace
from itertools import islice

import gymnasium as gym
import openai
import pytest
import torch
from aiohttp.test_utils import TestClient, TestServer
from chat_server import chat_server
from knower import KWARGS, Knower, by_the_oracle, serving, tagged, tasks_of
from scripted_engine import tokenizer
from vault import VAULT

import ludic_gym as lg
import ludic_train as lt
from envs_registry.catalog import CATALOG, SUITES
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.commands.main import main
from ludic_gym.commands.serve import EnvServer, make_app
from ludic_gym.harness import HARNESSES
from ludic_gym.rollout.episodes import run_episodes
from ludic_train.agents.gateway import Gateway
from ludic_train.agents.policies import AgentPolicies
from ludic_train.engine.client import LocalChatClient
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.runs.recipe import recipe_for
from ludic_train.runs.tasks import evaluation_tasks, training_tasks
from ludic_train.sources.rollouts import RolloutBatchSource

TRAINED = {"eval_episodes": 1, "final_episodes": 1, "preflight": False, "device": "cpu"}
IDS = [*(entry.id for entry in CATALOG), VAULT]


def rewards(rollouts):
    return [pytest.approx(rollout.total_reward) for rollout in rollouts]


async def played(tasks, make_policy):
    """Rewards of the tasks, one after the other."""
    made = [episode async for episode in run_episodes(tasks, make_policy, concurrency=1)]
    return [episode.rollouts[0].total_reward for episode in made]


@pytest.mark.long
@pytest.mark.parametrize("name", HARNESSES)
@pytest.mark.parametrize("env_id", IDS)
async def test_harnesses_of_all_names(env_id, name):
    tasks, harness = tasks_of(env_id), HARNESSES[name]
    known = await by_the_oracle(tasks)
    knower = Knower(known, harness.reply_form.replace("<think>", "<think>Let me see."))
    client = ScriptedClient(lambda messages, sampling: said(knower.reply(messages)))
    assert await played(tasks, harness.make_policy(client)) == rewards(known)


def said(reply):
    assert isinstance(reply, str)
    return reply


@pytest.mark.long
@pytest.mark.parametrize("env_id", IDS)
async def test_a_source_of_training(env_id):
    tasks = tasks_of(env_id)
    known = await by_the_oracle(tasks)
    knower = Knower(known)
    client = ScriptedClient(lambda messages, sampling: said(knower.reply(messages)))
    source = RolloutBatchSource(
        iter(tasks), lg.Harness().make_policy(client), groups_per_batch=2, concurrency=1
    )
    made, _ = await source.take(2)
    assert [float(each.rewards.sum()) for each in made] == rewards(known)


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory):
    """A folder with a tiny model to which all tokens are about equally likely; it has tools."""
    folder = tmp_path_factory.mktemp("model")
    model = make_tiny_model(tokenizer(), max_positions=65_536)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(0.01)
    save_model(model, tokenizer(), folder)
    return folder


class Saying:
    """The model of a run; its tokens are those of what a knower of the episode replies."""

    def __init__(self, client, env, known):
        self.client, self.env, self.known, self.knower = client, env, known, None
        self.has_native_tools = client.has_native_tools

    async def complete(self, messages, sampling, tools=()):
        if self.knower is None:
            seed = self.env.unwrapped.np_random_seed
            played = [rollout for rollout in self.known if rollout.task.seed == seed]
            # The report plays one more, in which the model knows nothing.
            self.knower = Knower(played or self.known[:1])
        reply = self.knower.reply(messages, tools)
        SAID.set(reply if isinstance(reply, str) else tagged(*reply))
        return await self.client.complete(messages, sampling, tools)


SAID = ContextVar("SAID")


async def continued(client, prompt_ids, sampling):
    ids = (*tokenizer().encode(SAID.get(), add_special_tokens=False), tokenizer().eos_token_id)
    return lg.Completion(
        text=SAID.get(),
        finish_reason="stop",
        sampling=sampling,
        prompt_ids=tuple(prompt_ids),
        completion_ids=ids,
        logprobs=(-math.log(len(tokenizer())),) * len(ids),
        policy_version=client.policy_version,
    )


@pytest.mark.long
@pytest.mark.parametrize("env_id", IDS)
def test_an_update_of_a_training_run(env_id, chat_model, tmp_path, monkeypatch):
    kwargs = KWARGS.get(env_id)
    recipe = recipe_for([env_id], model=str(chat_model), env_kwargs=kwargs)
    learned = list(islice(training_tasks(recipe, recipe.defaults, 0), 4))
    (measured,) = evaluation_tasks(recipe, recipe.defaults, 1).values()
    known = asyncio.run(by_the_oracle([*learned, *measured]))
    monkeypatch.setattr(LocalChatClient, "continued", continued)
    lt.train(
        recipe,
        harness=lambda client, env: lg.Harness().policy(Saying(client, env, known), env),
        algo=lt.reinforce(),
        updates=1,
        groups=1,
        group_size=2,
        max_tokens=20_000,
        out=tmp_path / "run",
        **TRAINED,
    )
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    before, update, after = map(json.loads, lines)
    played, tested = rewards(known)[0], rewards(known)[-1]
    assert (before["eval/test/reward"], update["reward"], after["eval/test/reward"]) == (
        tested,
        played,
        tested,
    )
    assert update["replies/legal"] == 1
    assert (update["grad_norm"] > 0) == (update["reward"] != 0)


@pytest.mark.long
@pytest.mark.parametrize("env_id", IDS)
async def test_a_benchmark_of_a_server(env_id, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    known = await by_the_oracle(tasks_of(env_id))
    kwargs = [f"{name}={value}" for name, value in KWARGS.get(env_id, {}).items()]
    with chat_server(serving(Knower(known))) as server:
        # On a thread: the command runs an event loop of its own.
        words = ["bench", env_id, "--policy", server.url, "--model", "small", "--episodes", "2"]
        words += ["--concurrency", "1", "--out", str(tmp_path), "--max-tokens", "20000"]
        words += ["--env-kwargs", *kwargs] if kwargs else []
        assert await asyncio.to_thread(main, words) == 0
    (path,) = tmp_path.glob("*v0.jsonl")
    assert [each.total_reward for each in lg.read_rollouts(path)] == rewards(known)


async def agent(task):
    """A program as any tutorial has it: calls tools until the model answers."""
    messages = [{"role": "user", "content": task.prompt}]
    if task.system_prompt:
        messages.insert(0, {"role": "system", "content": task.system_prompt})
    async with openai.AsyncOpenAI(base_url=task.base_url, api_key=task.api_key) as client:
        while True:
            made = await client.chat.completions.create(
                model=task.model, messages=messages, tools=task.tools
            )
            message = made.choices[0].message
            if not message.tool_calls:
                return message.content
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                arguments = json.loads(call.function.arguments)
                result = await task.call(call.function.name, arguments)
                if "The episode is over" in result:
                    return None
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


@pytest.mark.long
@pytest.mark.parametrize("env_id", IDS)
async def test_a_program_behind_the_gateway(env_id, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    tasks = tasks_of(env_id)
    known = await by_the_oracle(tasks)
    with chat_server(serving(Knower(known))) as server:
        policy = lg.model(server.url, "small")
        async with Gateway(policy.client, max_tokens=20_000).running() as gateway:
            assert await played(tasks, AgentPolicies(gateway, agent)) == rewards(known)
        await policy.aclose()


@pytest.mark.long
@pytest.mark.parametrize("env_id", IDS)
async def test_a_served_environment(env_id):
    # Its episodes are drawn from seeds, rows too.
    tasks = [replace(task, options=None) for task in tasks_of(env_id)]
    known = await by_the_oracle(tasks)
    knower = Knower(known)
    env = gym.make(env_id, **tasks[0].kwargs)
    async with TestClient(TestServer(make_app(EnvServer(env)))) as client:

        async def call(name, arguments):
            reply = await client.post(f"/tools/{name}", json=arguments)
            return (await reply.json())["result"]

        for task, expected in zip(tasks, rewards(known), strict=True):
            messages = [{"role": "user", "content": await call("reset", {"seed": task.seed})}]
            while "The episode is over" not in messages[-1]["content"]:
                tools = (await (await client.get("/tools")).json())["tools"]
                reply = knower.reply(messages, tools)
                messages.append({"role": "assistant", "content": str(reply)})
                messages.append({"role": "tool", "content": await call(*reply)})
            earned = float(messages[-1]["content"].partition("reward ")[2].partition(",")[0])
            assert earned == pytest.approx(expected.expected, abs=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("name", HARNESSES)
async def test_the_suite_of_tools_is_solved_by_a_model_that_calls_them(name, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    known = [each for id in SUITES["tools"] for each in await by_the_oracle(tasks_of(id))]
    with chat_server(serving(Knower(known, HARNESSES[name].reply_form))) as server:
        words = ["bench", "tools", "--policy", server.url, "--model", "small", "--episodes", "2"]
        words += ["--harness", name]
        words += ["--concurrency", "1", "--out", str(tmp_path), "--max-tokens", "20000"]
        assert await asyncio.to_thread(main, words) == 0
    rollouts = [each for path in tmp_path.glob("*v0.jsonl") for each in lg.read_rollouts(path)]
    assert [each.steps[-1].info["success"] for each in rollouts] == [True] * len(known)
    offered = {
        tool["function"]["name"] for body in server.requests for tool in body.get("tools", ())
    }
    # A name of each environment whose calls are tools; FunctionCalls reads lists of calls in text.
    expected = set() if name == "react" else {"python", "list_events", "identify", "search"}
    assert expected <= offered
