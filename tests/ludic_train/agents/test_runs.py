"""Agent programs in whole runs: training, benchmarks, and the commands."""

import asyncio
import json
import shlex
import sys
import threading

import gymnasium as gym
import noting_harness
import pytest
import tool_program

import ludic_gym as lg
import ludic_train as lt
from ludic_gym.commands.bench import main as bench
from ludic_gym.errors import ConfigError
from ludic_gym.tools.mcp_server import action_tools
from ludic_train.agents.policies import open_agent
from ludic_train.agents.programs import named_agent
from ludic_train.cluster.actor import ActorOptions
from ludic_train.cluster.run_actor import play_remotely, until_published
from ludic_train.commands.train import main as train
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.runs.folder import started_recipe
from ludic_train.runs.tasks import training_tasks

AGENT = "asking_agent:play"
PROGRAM = shlex.join([sys.executable, tool_program.__file__])


# REINFORCE needs no two rewards that differ, and a random model gets none.
FEW = (
    "--updates 1 --groups 2 --group-size 2 --max-tokens 8 --algo reinforce "
    "--eval-every 5 --eval-episodes 2 --final-episodes 2"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of a random model whose tokens are words, so that schemas of tools take few."""
    texts = [json.dumps(action_tools(gym.make("ludic/ToolCalls-v0")))] * 2
    tokenizer = make_tokenizer(texts, vocab_size=1000)
    folder = tmp_path_factory.mktemp("model")
    lt.save_model(lt.make_tiny_model(tokenizer, max_positions=8192), tokenizer, folder)
    return str(folder)


def updates_of(run):
    """Metrics of each update."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "rows" in line]


@pytest.mark.slow
def test_the_commands_of_the_guide_train_and_measure_a_program(tmp_path, model):
    run, results = tmp_path / "run", tmp_path / "results"
    settings = ["--model", model, "--out", str(run), "--no-preflight"]
    assert train(["ludic/ToolCalls-v0", "--agent", PROGRAM, *settings, *FEW.split()]) == 0
    assert "tool_program.py" in (run / "config.toml").read_text()
    (update,) = updates_of(run)
    # A model call of eight tokens in each of the four episodes.
    assert (update["rows"], update["tokens/sampled"]) == (4, 32)
    assert update["mismatch/ratio_max"] == pytest.approx(1, abs=1e-3)
    measured = ["--policy", str(run), "--episodes", "3", "--max-tokens", "8", "--out", str(results)]
    assert bench(["ludic/ToolCalls-v0", "--agent", PROGRAM, *measured]) == 0
    episodes = (results / "ludic-ToolCalls-v0.jsonl").read_text().splitlines()
    assert len(episodes) == 3


@pytest.mark.long
def test_a_program_is_trained_and_measured(tmp_path):
    out = tmp_path / "run"
    results = lt.train(
        "ludic/Arithmetic-v0",
        agent=AGENT,
        out=out,
        # Its credit needs no two rewards that differ.
        algo="reinforce",
        demonstrations=130,
        sft_updates=1,
        updates=1,
        groups=2,
        group_size=2,
        eval_every=5,
        eval_episodes=2,
        final_episodes=2,
        preflight=False,
    )
    assert {"test/success", "test/reward"} <= results.keys()
    assert 'agent = "asking_agent:play"' in (out / "config.toml").read_text()
    tasks = [lg.Task(env_id="ludic/Arithmetic-v0", seed=i) for i in range(3)]

    async def measured():
        async with open_agent(str(out), AGENT) as make_policy:
            return await lg.run_bench(tasks, make_policy)

    result = asyncio.run(measured())
    assert (result.episodes, result.errors) == (3, ())


async def test_a_model_that_was_trained_to_be_read_exactly_plays_for_no_program(tmp_path):
    (tmp_path / "model").mkdir()
    lg.write_harness(tmp_path, lg.Harness(parser="strict"))
    with pytest.raises(ConfigError, match="parser='strict', and an agent acts by calls too"):
        async with open_agent(str(tmp_path), AGENT):
            pass


def actor_of(tmp_path):
    """The folder of a run, an actor of it that ends with the run, and its summary, in a list."""
    run, stop, summaries = tmp_path / "run", asyncio.Event(), []

    async def act():
        await until_published(run, stop)
        recipe = started_recipe(run)[0]
        return await play_remotely(
            run,
            training_tasks(recipe, recipe.defaults, seed=5),
            options=ActorOptions(concurrency=2, grace_s=0.1),
            stop=stop,
            agent=recipe.defaults.sample.agent,
        )

    actor = threading.Thread(target=lambda: summaries.append(asyncio.run(act())))
    actor.start()
    return run, actor, summaries


@pytest.mark.long
def test_actors_play_a_program_for_a_queue(tmp_path, model):
    run, actor, summaries = actor_of(tmp_path)
    queue = f"file://{tmp_path}/q.sqlite3"
    settings = ["--model", model, "--out", str(run), "--no-preflight", "--queue", queue]
    assert train(["ludic/ToolCalls-v0", "--agent", PROGRAM, *settings, *FEW.split()]) == 0
    actor.join(60)
    assert summaries[0].pushed >= 2
    (update,) = updates_of(run)
    assert (update["rows"], update["tokens/sampled"]) == (4, 32)
    assert update["mismatch/ratio_max"] == pytest.approx(1, abs=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("named", ["noting_harness:policy", "tools=noting_harness:TOOLS"])
def test_actors_play_as_the_harness_that_the_run_names(tmp_path, model, named):
    run, actor, summaries = actor_of(tmp_path)
    noting_harness.TAKEN.clear()
    queue = f"file://{tmp_path}/q.sqlite3"
    settings = ["--model", model, "--out", str(run), "--no-preflight", "--queue", queue]
    assert train(["ludic/Arithmetic-v0", "--harness", named, *settings, *FEW.split()]) == 0
    actor.join(60)
    assert summaries[0].pushed >= 2
    assert actor.name in noting_harness.TAKEN


@pytest.mark.parametrize(
    "settings",
    [
        {"agent": AGENT, "system_prompt": "x"},
        {"agent": AGENT, "think_tokens": 5},
        {"agent": AGENT, "parser": "strict"},
        {"agent": AGENT, "self_play": True},
    ],
)
def test_settings_that_a_program_cannot_have_are_refused(settings, tmp_path):
    with pytest.raises(ConfigError, match="agent="):
        lt.train("ludic/ConnectFour-v0", out=tmp_path, **settings)


@pytest.mark.parametrize("agent", ["asking_agent:no", "no_such_module:f", "", "'"])
def test_an_agent_that_does_not_exist_is_refused(agent):
    with pytest.raises(ConfigError):
        named_agent(agent)


def test_a_program_is_not_measured_with_a_model_behind_another_server():
    with pytest.raises(ConfigError, match="this process loads"):
        bench(["ludic/ConnectFour-v0", "--agent", AGENT, "--policy", "http://localhost:1"])
