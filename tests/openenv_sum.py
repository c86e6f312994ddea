"""An OpenEnv package in a folder, and its server: sums of two numbers, sound or with a fault."""

import json
import random
import socket
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

from ludic_gym.adapters.openenv_graders import SEEDS


class Answer(Action):
    text: str


class Question(Observation):
    text: str


def numbers(seed):
    rng = random.Random(seed)
    return rng.randint(10, 99), rng.randint(10, 99)


class Sum(Environment):
    """One question; 1 for its answer."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.pair = numbers(seed)
        return Question(text=self.ask(), done=False, reward=0.0)

    def ask(self):
        return "{} + {}?".format(*self.pair)

    def step(self, action, timeout_s=None, **kwargs):
        return Question(text="", done=True, reward=self.grade(action.text))

    def grade(self, text):
        return float(text == str(sum(self.pair)))

    @property
    def state(self):
        return State(step_count=0)


class DropsSeed(Sum):
    def reset(self, seed=None, episode_id=None, **kwargs):
        return super().reset(seed=None)


class FixesSeed(Sum):
    def reset(self, seed=None, episode_id=None, **kwargs):
        return super().reset(seed=0)


class Shares(Sum):
    """The pair is kept on the class."""

    def reset(self, seed=None, episode_id=None, **kwargs):
        Shares.current = numbers(seed)
        self.pair = Shares.current
        return Question(text=self.ask(), done=False, reward=0.0)

    def grade(self, text):
        return float(text == str(sum(Shares.current)))


class Leaks(Sum):
    def ask(self):
        return f"{super().ask()} <!-- {sum(self.pair)} -->"


class PaysAll(Sum):
    def grade(self, text):
        return 1.0


class PaysNobody(Sum):
    def grade(self, text):
        return 0.0


class Noisy(Sum):
    def grade(self, text):
        return random.random()


@contextmanager
def served(cls):
    """Base URL of a server of the environment."""
    app = create_fastapi_app(cls, Answer, Question, max_concurrent_envs=8)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(app, port=port, log_level="error", ws="websockets-sansio")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


def package(folder):
    """Write the package's files; the plan's action is the answer for its seed, 0."""
    (folder / "validation").mkdir()
    oracle = {seed: [{"text": str(sum(numbers(seed)))}] for seed in SEEDS}
    (folder / "oracle.json").write_text(json.dumps(oracle))
    plan = {
        "plan_schema_version": "1",
        "reset": {"episode_id": "one", "seed": 0},
        "actions": oracle[0],
    }
    (folder / "validation" / "runtime.json").write_text(json.dumps(plan))
    (folder / "openenv.yaml").write_text("name: sum\n")
    (folder / "README.md").write_text("# Sum\n")
    (folder / "Dockerfile").write_text(
        "FROM python@sha256:" + "0" * 64 + "\nCOPY server.py /\n"
        "LABEL org.opencontainers.image.source=x org.opencontainers.image.version=1\n"
    )
    (folder / "requirements.txt").write_text("openenv==0.10.0\n")
    (folder / "sbom.json").write_text('{"bomFormat": "CycloneDX"}')


def subject(folder, base_url):
    """The arguments of a grader: the package, its declarations, and the running server."""
    oracle = SimpleNamespace(form="script", location="oracle.json")
    manifest = SimpleNamespace(
        execution=SimpleNamespace(probe_path="validation/runtime.json"),
        reward=SimpleNamespace(
            range=(0.0, 1.0), oracle_tolerance=0.0, floor_margin=0.5, variance_tolerance=None
        ),
        resources=SimpleNamespace(cpu=1.0, memory_mb=512, disk_mb=512, episode_timeout_s=60.0),
        task_distribution=SimpleNamespace(generator_seed=0, dataset_version=None),
        capabilities=SimpleNamespace(oracle=oracle),
    )
    return SimpleNamespace(
        root=folder, manifest=manifest, running=SimpleNamespace(base_url=base_url)
    )
