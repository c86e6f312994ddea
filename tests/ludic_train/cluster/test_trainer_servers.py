"""`--gpus N --servers M`: which cards each process sees, and a training on the CPU."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import forked
import pytest
from served_run import start_model

from ludic_gym.commands.main import main
from ludic_train.cluster import trainer_servers
from ludic_train.cluster.layout import Layout, ServerCards
from ludic_train.cluster.roles import ProcessGroup
from ludic_train.cluster.servers.supervisor import responds
from ludic_train.commands import launch
from ludic_train.distributed import local_ranks
from ludic_train.models.load import save_model
from ludic_train.processes import free_port
from ludic_train.runs.config import RunConfig
from ludic_train.runs.machine import Machine

# In place of `ludic`: notes its cards and words, and as a server responds until it is stopped.
STAND_IN = """
import http.server, json, os, pathlib, sys
folder, words = pathlib.Path({folder!r}), sys.argv[1:]
name = words[0] + os.environ.get("RANK", words[-1])
if os.environ.get("CUDA_VISIBLE_DEVICES") == "broken":
    sys.exit("no such card")
# Whoever waits for the file finds it whole.
draft = folder.with_name("draft-" + name)
draft.write_text(json.dumps([os.environ["CUDA_VISIBLE_DEVICES"], words]))
draft.rename(folder / name)
if words[0] == "serve":
    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
        def log_message(self, *args):
            pass
    http.server.HTTPServer(("127.0.0.1", int(words[-1])), Health).serve_forever()
"""
FOUR = Layout(
    servers=(
        ServerCards(cards=("4", "GPU-b"), share=0.9),
        ServerCards(cards=("6", "7"), share=0.9),
    ),
    ranks=("2", "3"),
)


@pytest.fixture
def noted(monkeypatch, tmp_path):
    """A folder to which the processes write their cards and words."""
    folder = tmp_path / "noted"
    folder.mkdir()
    command = (sys.executable, "-c", STAND_IN.format(folder=str(folder)))
    for module in (local_ranks, trainer_servers, launch):
        monkeypatch.setattr(module, "LUDIC", command)
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    return folder


def settings(tmp_path, **changes):
    return RunConfig(out=tmp_path / "run").changed(**{"model": "some/model", **changes})


def test_each_process_sees_its_own_cards(noted, tmp_path, capsys):
    machine = Machine(engine=("vllm",), vllm_python="/vllm/python")
    argv = ["x", "--engine", "vllm", "--servers", "2", "--vllm-python=/vllm/python", "--seed", "1"]
    chosen = settings(tmp_path, top_p=0.9, dtype="bf16")
    assert trainer_servers.run_on(FOUR, argv, chosen, machine) == 0
    found = [json.loads(path.read_text()) for path in sorted(noted.iterdir())]
    servers = [each for each in found if each[1][0] == "serve"]
    trained = [each for each in found if each[1][0] == "train"]
    assert sorted(shown for shown, _ in servers) == ["4,GPU-b", "6,7"]
    assert [shown for shown, _ in trained] == ["2,3", "2,3"]
    urls = re.search("servers +(.*); logs", capsys.readouterr().out).group(1).split()
    rest = ["x", "--servers", "2", "--seed", "1"]
    assert [words for _, words in trained] == [["train", *rest, "--engine", *urls]] * 2
    flags = ["--tensor-parallel-size", "2", "--gpu-memory-utilization", "0.9", "--port"]
    words = ["--engine", "vllm", "--dtype", "bfloat16", "--vllm-python", "/vllm/python"]
    words += ["--sampling-mask"]
    for _, served in servers:
        assert served[:-1] == ["serve", "some/model", *words, *flags]
        # Stopped with the run.
        assert not cards_respond(served[-1])


def cards_respond(port):
    return responds(f"http://127.0.0.1:{port}")


def test_a_server_that_ends_during_its_start_is_shown(noted, tmp_path):
    broken = Layout(servers=(ServerCards(cards=("broken",), share=0.9),), ranks=("0",))
    with pytest.raises(
        trainer_servers.ServerError,
        match=r"server-0 ended with code 1 .*\n.*no such card",
    ):
        trainer_servers.run_on(broken, ["x"], settings(tmp_path), Machine())
    assert not list(noted.glob("train*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "m", "--queue", "file://q"], "with a queue: take `ludic launch --servers`"),
        (["--model", "m", "--engine", "http://x"], "would be started beside --engine http://x"),
        (["--demonstrations", "9"], "serve a model that exists: name one with --model"),
        (["--model", "m", "--device", "cpu", "--servers", "2"], "2 servers of 1 cards take all of"),
        (["--model", "m", "--tensor-parallel", "2"], "tensor_parallel=2 is for --engine vllm"),
        (["--model", "m", "--engine", "vllm", "--vllm-python", "/x"], "there is no Python '/x'"),
    ],
)
def test_servers_that_cannot_be_started_are_refused(words, said, tmp_path, capsys):
    words = ["--out", str(tmp_path), "--servers", "1", *words]
    assert main(["train", "tic-tac-toe", *words]) == 2
    assert said in capsys.readouterr().err


def test_launch_gives_its_roles_the_cards_of_the_layout(noted, tmp_path):
    options = launch.Options(
        names=("x",), engine="vllm", vllm_python="/v", servers=2, actors=1, gpus=6, redis=True
    )
    # As the trainer leaves it.
    text = 'envs = ["ludic/Countdown-v0"]\n[tune]\ndtype = "float32"'
    (tmp_path / "config.toml").write_text(text)
    place = ProcessGroup(tmp_path, os.environ)
    ports = [free_port(), free_port()]
    launch._start_trainer(options, tmp_path, "file://q", ports, ["--seed", "1"], place, FOUR)
    launch._start_players(options, tmp_path, "file://q", ports, place, FOUR)
    while len(list(noted.iterdir())) < 4:
        assert all(role.process.poll() in (None, 0) for role in place.roles)
        time.sleep(0.05)
    place.stop()
    found = [json.loads(path.read_text()) for path in noted.iterdir()]
    shown = {words[0]: [s for s, w in found if w[0] == words[0]] for _, words in found}
    assert shown == {"train": ["2,3"], "serve": shown["serve"], "launch": [""]}
    assert sorted(shown["serve"]) == ["4,GPU-b", "6,7"]
    (trained,) = (words for _, words in found if words[0] == "train")
    assert trained[-4:] == ["--seed", "1", "--gpus", "2"]
    served = [words for _, words in found if words[0] == "serve"]
    flags = ["--tensor-parallel-size", "2", "--gpu-memory-utilization", "0.9", "--port"]
    assert all(words[-8:-1] == ["--dtype", "float32", *flags] for words in served)


def of_two_servers(tmp_path, updates):
    save_model(*start_model(), tmp_path / "model")
    words = ["--model", str(tmp_path / "model"), "--out", str(tmp_path / "run"), "--device", "cpu"]
    words += ["--gpus", "4", "--servers", "2", "--lora-rank", "0", "--demonstrations", "0"]
    words += ["--updates", str(updates), "--groups", "4", "--group-size", "4", "--max-tokens", "4"]
    words += ["--eval-every", str(updates), "--eval-episodes", "2", "--final-episodes", "2"]
    words += ["--no-preflight", "--algo", "reinforce"]
    return ["-m", "ludic_gym", "train", "tic-tac-toe", *words]


def records(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
def test_two_ranks_learn_from_episodes_of_two_servers(tmp_path):
    done = forked.run(of_two_servers(tmp_path, 4), timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ranks        cpu:0, cpu:1\nserver-0     cpu:2\nserver-1     cpu:3\n" in done.stdout
    gaps = [line.get("mismatch/kl_at_lag_0", 0.0) for line in records(tmp_path)]
    assert max(map(abs, gaps)) < 1e-6
    # Both of them sampled.
    for number in range(2):
        log = (tmp_path / "run" / "logs" / f"server-{number}.log").read_text()
        assert "ready" in log


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_of_the_launcher_that_ends_or_hangs_is_started_again(tmp_path, signum):
    updates, log = 12, tmp_path / "log"
    run = forked.spawn(of_two_servers(tmp_path, updates), log, dict(os.environ))
    try:
        while not any("loss" in line for line in records(tmp_path)):
            assert run.poll() is None, log.read_text()
            time.sleep(0.05)
        words = ["pgrep", "-f", f"ludic_gym serve {tmp_path / 'model'}"]
        found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        os.kill(int(found[0]), signum)
        assert run.wait(300) == 0, log.read_text()
    finally:
        run.kill()
        run.wait()
    reason = "ended with code -9" if signum == signal.SIGKILL else "did not respond for 20 s"
    assert re.search(rf"server-\d {reason}; starting it again \(1 of 3", log.read_text())
    lines = records(tmp_path)
    assert [line["update"] for line in lines if "loss" in line] == list(range(1, updates + 1))
    # Nothing was learned from the params of its start.
    assert max(abs(line.get("mismatch/kl_at_lag_0", 0.0)) for line in lines) < 1e-6
