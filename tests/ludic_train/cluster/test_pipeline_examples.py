"""The two example programs find each other, and learn."""

import re
import signal
import subprocess
from itertools import count
from pathlib import Path

import forked
import pytest
from redis_server import free_port, needs_redis

databases = count(1)
FOLDER = Path(__file__).parents[3] / "examples" / "pipeline_rl"


def start(program, *words, tmp_path):
    return forked.Python(
        [str(FOLDER / program), *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.fixture
def ends(redis_server, tmp_path):
    """Starts programs of the example on one queue; what is left running is ended."""
    running = []
    # The key is always the same, so each test takes a database of its own.
    url = redis_server.url.replace("/0", f"/{next(databases)}")

    def start_one(program, *words):
        common = ["--queue", url, "--params", "params"]
        running.append(start(program, *common, *words, tmp_path=tmp_path))
        return running[-1]

    yield start_one
    for process in running:
        process.kill()
        process.communicate()


def assert_learned_together(actor, trainer):
    text, _ = trainer.communicate(timeout=540)
    assert trainer.returncode == 0, text
    actor.send_signal(signal.SIGTERM)
    said, _ = actor.communicate(timeout=300)
    assert actor.returncode == 0, said
    assert "Unclosed" not in said
    lines = re.findall(r"update +(\d+)  reward (\S+)  lag (\d+)", text)
    assert [int(update) for update, _, _ in lines] == list(range(1, 13))
    assert all(int(lag) <= 2 for _, _, lag in lines)
    assert int(re.search(r"pushed (\d+) groups", said)[1]) >= 12 * 8


@needs_redis
def test_an_actor_and_a_trainer_that_are_started_apart_learn_together(tmp_path, ends):
    assert_learned_together(ends("run_actor.py"), ends("run_trainer.py", "--updates", "12"))
    assert (tmp_path / "params" / "checkpoints" / "step_00000010" / "state.json").is_file()


@pytest.mark.slow
@needs_redis
def test_an_actor_can_ask_a_server_that_the_trainer_publishes_to(tmp_path, ends):
    saving = start("even_digit.py", "--save", "start", tmp_path=tmp_path)
    assert (
        saving.communicate()[0] == "wrote start, which learns to answer: An even digit, please.\n"
    )
    url = f"http://127.0.0.1:{free_port()}"
    words = ["serve", "start", "--engine", "local", "--port", url.rpartition(":")[2]]
    command = ["-m", "ludic_gym", *words]
    with forked.Python(command, cwd=tmp_path, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout.readline().startswith(f"ready  {url}")
            actor = ends("run_actor.py", "--servers", url)
            trainer = ends("run_trainer.py", "--updates", "12", "--servers", url)
            assert_learned_together(actor, trainer)
        finally:
            server.terminate()
    assert not list((tmp_path / "params").glob("newest.json"))
