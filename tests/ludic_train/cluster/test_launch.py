"""The commands that make a recipe a pipeline, as people type them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest
from redis_server import needs_redis

from ludic_gym.commands.main import USAGE_ERROR, main
from ludic_gym.errors import ConfigError
from ludic_train.cluster import roles
from ludic_train.cluster.address import read_address
from ludic_train.cluster.roles import POLICIES, resources_of
from ludic_train.commands.launch import resumed
from ludic_train.errors import ActorError, ModelNotFound

# REINFORCE learns from equal rewards too, and so from those of a model that has imitated little.
SMALL = ["--demonstrations", "300", "--sft-updates", "4", "--groups", "2", "--updates", "8"]
SMALL += ["--group-size", "4", "--minibatches", "2", "--eval-every", "6", "--eval-episodes", "4"]
SMALL += ["--final-episodes", "4", "--algo", "reinforce"]
ON_CPU = ["--device", "cpu"]
LUDIC = [sys.executable, "-m", "ludic_gym"]


def failing(error):
    def work():
        raise error

    return work


def test_a_role_fails_with_1_for_what_another_start_may_cure(capsys):
    assert roles.exit_code_of_role(lambda: 0) == 0
    assert roles.exit_code_of_role(failing(ActorError("the run was started anew"))) == 1
    assert capsys.readouterr().err == "ludic: the run was started anew\n"


@pytest.mark.parametrize("error", [ConfigError("--queue x"), ModelNotFound("no model y")])
def test_a_role_with_a_configuration_error_is_not_started_again(error):
    with pytest.raises(type(error), match=str(error)):
        roles.exit_code_of_role(failing(error))
    # As the command `ludic` returns for what is raised.
    assert all(USAGE_ERROR in POLICIES[kind].final for kind in ("actor", "server", "trainer"))
    assert all(1 not in policy.final for policy in POLICIES.values())


@pytest.fixture
def launch():
    """Starts `ludic launch`; what a failed test leaves running is stopped, all of it."""
    made = []

    def start(*words, out, further=()):
        recipe = [*SMALL, *further]
        command = [*LUDIC, "launch", "tic-tac-toe", "--out", str(out), *words, "--", *recipe]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        made.append(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
            )
        )
        return made[-1]

    yield start
    for process in made:
        process.terminate()
        process.communicate(timeout=300)


def alive(name):
    """Processes whose command line holds this text."""
    found = subprocess.run(["pgrep", "-f", name], capture_output=True, text=True, check=False)
    return found.stdout.split()


def until(condition, process):
    deadline = time.monotonic() + 180
    while not condition():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.2)


def records(out):
    path = out / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def assert_trained_together(out, text, *, actors):
    """All updates were made, from groups no older than a recipe's usual lag: 2 * 2 - 1."""
    assert alive(str(out)) == []
    games = [record for record in records(out) if "groups" in record]
    assert records(out)[-1]["update"] == 12, text
    assert sum(record["groups"] for record in games) >= 8
    assert max(record["lag/max"] for record in games) <= 3
    for number in range(actors):
        assert "pushed" in (out / "logs" / f"actor-{number}.log").read_text()
    assert (out / "results.json").is_file()


@pytest.mark.slow
@needs_redis
def test_one_command_starts_all_processes_and_ends_them_when_training_has_ended(tmp_path, launch):
    out = tmp_path / "run"
    process = launch("--actors", "1", "--redis", out=out)
    text, _ = process.communicate(timeout=540)
    assert process.returncode == 0, text
    assert "started redis, trainer, server-0, actor-0" in text
    assert_trained_together(out, text, actors=1)
    (address,) = read_address(out).servers
    assert f"ready  {address}" in (out / "logs" / "server-0.log").read_text()
    # What tokens were sampled with are the params of the version they name, to float32's rounding.
    distances = [record.get("mismatch/kl_at_lag_0", 0.0) for record in records(out)]
    assert max(map(abs, distances)) < 1e-6


@pytest.fixture
def forks(monkeypatch):
    """The processes that `ludic launch` starts here, but Redis: forked, which saves seconds."""
    made, start = [], roles.spawn

    def spawn(arguments, log, env):
        if "-m" not in arguments:
            return start(arguments, log, env)
        # Without the program that guards them.
        made.append(forked.spawn(arguments[arguments.index("-m") :], log, env))
        return made[-1]

    monkeypatch.setattr(roles, "spawn", spawn)
    yield made
    for process in made:
        process.kill()


@pytest.mark.long
@needs_redis
def test_without_a_server_each_actor_samples_by_itself(tmp_path, forks, capsys):
    out = tmp_path / "run"
    words = ["--actors", "1", "--servers", "0", "--redis", "--out", str(out)]
    code = main(["launch", "tic-tac-toe", *words, "--", *SMALL])
    text, errors = capsys.readouterr()
    assert code == 0, errors
    assert "started redis, trainer, actor-0" in text
    assert [process.returncode for process in forks] == [0, 0]
    assert_trained_together(out, text, actors=1)
    password = (out / "queue.password").read_text()
    assert (out / "queue.password").stat().st_mode & 0o777 == 0o600
    shown = [out / "queue.json", out / "config.toml", *(out / "logs").iterdir()]
    assert not any(password in path.read_text() for path in shown)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["server-0", "actor-0"])
def test_a_process_that_is_killed_ends_the_others_and_the_trainer_saves(tmp_path, launch, victim):
    out = tmp_path / "run"
    queue = ["--queue", f"file://{tmp_path}/q.sqlite3"]
    process = launch(*queue, out=out, further=["--updates", "4000"])
    until(lambda: any("groups" in record for record in records(out)), process)
    role, _ = victim.split("-")
    words = {"server": f"serve {out}", "actor": f"actor {out} .* --name {victim}"}
    (pid,) = alive(words[role])
    os.kill(int(pid), signal.SIGKILL)
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 1, text
    assert f"{victim} ended with -9; the end of {out}/logs/{victim}.log:" in text
    assert re.search(rf"resume   ludic launch tic-tac-toe --out {out} .* -- --resume", text)
    assert alive(str(out)) == []
    assert "saved; resume with" in (out / "logs" / "trainer.log").read_text()


@pytest.mark.slow
def test_ctrl_c_saves_and_the_run_goes_on_where_it_stopped(tmp_path, launch):
    out = tmp_path / "run"
    queue = ["--queue", f"file://{tmp_path}/queue.sqlite3", "--actors", "1"]
    process = launch(*queue, out=out)
    until(lambda: any("groups" in record for record in records(out)), process)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=300)
    assert "the trainer saves first" in text
    assert process.returncode == 130, text
    assert "-- --resume" in text
    assert alive(str(out)) == []
    stopped = records(out)[-1]["update"]
    command = [*LUDIC, "launch", "tic-tac-toe", *queue, "--out", str(out), "--", "--resume"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stderr
    games = [record["update"] for record in records(out) if "groups" in record]
    assert stopped <= 12 == records(out)[-1]["update"]
    assert len(games) == len(set(games))


@pytest.fixture
def started(tmp_path, launch):
    """A run with all roles that has begun to train, and its folder."""
    out = tmp_path / "run"
    process = launch("--actors", "1", "--redis", out=out, further=["--updates", "4000"])
    until(lambda: any("groups" in record for record in records(out)), process)
    return process, out


@pytest.mark.slow
@needs_redis
def test_a_second_ctrl_c_ends_all_at_once(started):
    process, out = started
    # A trainer that does not save at the first one.
    (trainer,) = alive(f"ludic_gym train tic-tac-toe --out {out}")
    os.kill(int(trainer), signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=10)
    assert process.returncode == 130, text
    assert "resume   ludic launch" in text
    assert alive(str(out)) == []


@pytest.mark.slow
@needs_redis
def test_a_launcher_that_is_killed_leaves_no_process(started):
    process, out = started
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while (left := alive(str(out))) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []
    assert "saved; resume with" in (out / "logs" / "trainer.log").read_text()


def test_a_process_that_fails_ends_the_others_and_is_quoted(tmp_path, forks, capsys):
    out = tmp_path / "run"
    words = ["--queue", "file:///nowhere/at/all", "--out", str(out)]
    # The trainer and the actors open the queue, and the first of them to do so fails.
    assert main(["launch", "arithmetic", *words, "--", *SMALL]) in (1, 2)
    assert re.search(r"ended with 2; .*\n.*cannot open the queue", capsys.readouterr().err)
    assert all(process.returncode is not None for process in forks)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chess", "--redis"], "'chess' is no environment, suite or recipe"),
        (["arithmetic"], "give one of the two"),
        (["arithmetic", "--redis", "--queue", "redis://x"], "give one of the two"),
        (["arithmetic", "--redis", "--actors", "0"], "at least one must play"),
        (["arithmetic", "--redis", "--threads", "0"], "threads=0; a process needs one"),
        (["arithmetic", "--redis", "--servers", "-1"], "0 lets each actor sample by itself"),
        (["arithmetic", "--redis", "--vllm-python", "x"], "vllm_python='x' is for --engine vllm"),
        (
            ["arithmetic", "--redis", "--engine", "vllm", "--vllm-python", "/x"],
            "there is no Python '/x'",
        ),
        (["arithmetic", "--redis", "--", "--engine", "http://x"], "add --servers 0"),
        (["arithmetic", "--redis", "--harness", "nine"], "no harness 'nine'; there are plain"),
        (
            ["arithmetic", "--redis", "--ranks", "2"],
            "ranks=2 is for --on ray; here",
        ),
        (["arithmetic", "--redis", "--on", "ray", "--ranks", "0"], "at least one rank must train"),
        (["arithmetic", "--on", "ray", "--queue", "file://x"], "queue=file://x is of one machine"),
        (["arithmetic", "--redis", "--on", "ray://x:1"], "give --queue, or launch on a node"),
        (["arithmetic", "--redis", "--on", "ray", "--", "--gpus", "2"], "take --ranks"),
        (["arithmetic", "--redis", "--on", "ray", "--gpus", "2"], "take --ranks"),
        (["arithmetic", "--redis", "--gpus", "2", "--", "--gpus=2"], "give one; the first deals"),
        (["arithmetic", "--redis", "--tensor-parallel", "2"], "is for servers on --gpus"),
        (["arithmetic", "--redis", "--gpus", "1", "--servers", "2", "--", *ON_CPU], "take all of"),
    ],
)
def test_what_cannot_be_launched_is_refused(words, said, capsys):
    assert main(["launch", *words]) == 2
    assert said in capsys.readouterr().err


def test_without_ray_the_command_that_installs_it_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["launch", "arithmetic", "--redis", "--on", "ray", "--out", str(tmp_path)]) == 2
    assert re.search(r"ray.*ludic-gym\[ray\]", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("kind", "cpus", "gpus"),
    [("trainer", 0.5, 2), ("server", 0.5, 1), ("actor", 0.5, 0), ("redis", 0, 0)],
)
def test_ranks_and_servers_reserve_cards_and_others_none(kind, cpus, gpus):
    found = resources_of(kind, cpus=0.5, rank_gpus=2, server_gpus=1)
    assert found == {"CPU": cpus, "GPU": gpus}


def test_a_trainer_that_is_started_again_leaves_out_what_a_resumed_run_refuses():
    # A refusal has the exit code of bad input, after which a cluster starts it no more.
    options = {
        "--curriculum": [],
        "--levels": ["digits=1", "digits=2"],
        "--env-kwargs": ["digits=2"],
        "--demonstrator": ["random"],
    }
    given = [word for name, values in options.items() for word in (name, *values)]
    words = [*LUDIC, "train", "ludic/Arithmetic-v0", "--out", "run", *given, "--seed", "1"]
    kept = [*LUDIC, "train", "ludic/Arithmetic-v0", "--out", "run", "--seed", "1", "--resume"]
    assert resumed(words) == resumed(resumed(words)) == kept


def test_without_a_redis_the_remedy_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["launch", "arithmetic", "--redis", "--out", str(tmp_path)]) == 2
    assert "--queue file://" in capsys.readouterr().err


def test_logs_that_cannot_be_written_are_refused(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["launch", "arithmetic", "--redis", "--out", str(tmp_path / "file" / "run")]) == 2
    assert "/file/run/logs: Not a directory; a folder that can be" in capsys.readouterr().err


def catches(process, signum):
    """True if the process has a handler for the signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (mask,) = re.findall(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)
    return int(mask, 16) >> (signum - 1) & 1


def test_an_actor_stops_while_it_waits_for_its_run(tmp_path):
    words = ["-m", "ludic_gym", "launch", "--only", "actor", str(tmp_path / "missing")]
    process = forked.Python(words, stderr=subprocess.PIPE)
    while not catches(process, signal.SIGTERM):
        assert process.poll() is None
        time.sleep(0.01)
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "stopped before the run in" in errors
