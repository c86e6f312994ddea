"""Environments whose calls block, and do not say so: each has a thread of its own."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time

import gymnasium as gym
import pytest
from pettingzoo.test.example_envs import generated_agents_env_v0

import ludic_gym as lg
from ludic_gym.play import play
from ludic_gym.rollout import pool
from ludic_gym.rollout.episodes import task_env
from ludic_gym.rollout.pool import is_quick
from ludic_gym.spaces import TEXT

FOR_EVER = threading.Event()


class Blocking(gym.Env):
    """Hangs in the method that is named; tells the threads of its calls."""

    observation_space = action_space = gym.spaces.Text(100, min_length=0)
    threads: list[threading.Thread] = []  # noqa: RUF012
    closed = 0

    def __init__(self, hangs_in=""):
        self.hangs_in = hangs_in
        self.called("init")

    def called(self, name):
        Blocking.threads.append(threading.current_thread())
        if name == self.hangs_in:
            FOR_EVER.wait(30)

    def reset(self, *, seed=None, options=None):
        self.called("reset")
        return "q", {}

    def step(self, action):
        self.called("step")
        return "", 1.0, True, False, {"success": True}

    def close(self):
        self.called("close")
        Blocking.closed += 1


class Database(Blocking):
    """Holds what only the thread may use that has made it."""

    def __init__(self):
        super().__init__()
        self.table = sqlite3.connect(":memory:")

    def step(self, action):
        (one,) = self.table.execute("select 1").fetchone()
        return str(one), 1.0, True, False, {"success": True}


class Quick(Blocking):
    metadata = {"render_modes": [], "blocking": False}  # noqa: RUF012


for kind in (Blocking, Database, Quick):
    gym.register(f"blocking/{kind.__name__}-v0", kind, disable_env_checker=True)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(Blocking, "threads", [])
    monkeypatch.setattr(Blocking, "closed", 0)


def say_a(env):
    return lg.ScriptedPolicy(["a"])


async def played(*tasks, **options):
    tasks = [task if isinstance(task, lg.Task) else lg.Task(env_id=task) for task in tasks]
    return [episode async for episode in lg.run_episodes(tasks, say_a, **options)]


def hanging(method):
    return lg.Task(env_id="blocking/Blocking-v0", kwargs={"hangs_in": method})


@pytest.mark.parametrize("method", ["init", "reset", "step"])
async def test_a_call_that_hangs_is_a_failure_of_its_environment_and_delays_no_other(method):
    episodes = await played(hanging(method), "ludic/Arithmetic-v0", timeout_s=0.3)
    errors = {episode.index: (episode.error, episode.blame) for episode in episodes}
    too_long = "EpisodeError: the episode took longer than timeout_s=0.3"
    assert errors == {0: (too_long, "environment"), 1: (None, None)}


def test_an_evaluation_has_a_time_limit_for_each_episode():
    kwargs = {"hangs_in": "step"}
    result = lg.evaluate(
        "blocking/Blocking-v0", say_a, episodes=2, timeout_s=0.3, env_kwargs=kwargs, progress=False
    )
    assert (result.episodes, result.blames) == (0, {"environment": 2})


async def test_an_environment_that_does_not_close_is_left_with_a_warning(monkeypatch):
    monkeypatch.setattr(pool, "CLOSE_S", 0.2)
    with pytest.warns(UserWarning, match=r"Blocking.*close\(\) takes longer than 0.2 s"):
        (episode,) = await played(hanging("close"))
    assert episode.rollouts[0].total_reward == 1.0


async def test_environments_that_do_not_close_are_waited_for_together(monkeypatch):
    monkeypatch.setattr(pool, "CLOSE_S", 0.2)
    envs = lg.env_pool(max_idle=8)
    tasks = [hanging("close") for _ in range(8)]
    episodes = [e async for e in lg.run_episodes(tasks, say_a, envs=envs)]
    start = time.monotonic()
    envs.close()
    # One after the other would take as long as each of them hangs.
    assert time.monotonic() - start < 15
    assert [episode.error for episode in episodes] == [None] * 8


async def test_a_grader_that_hangs_is_a_failure_of_its_environment():
    def grade(reply, truth):
        FOR_EVER.wait(30)

    env = lg.QAEnv([{"question": "1 + 1?", "answer": 2}], prompt="", grader=grade)
    env.register("blocking/Graded-v0")
    (episode,) = await played("blocking/Graded-v0", timeout_s=0.3)
    assert episode.blame == "environment"


async def test_an_environment_is_made_called_and_closed_on_one_thread_of_its_own():
    await played("blocking/Blocking-v0")
    assert len(Blocking.threads) == 4
    assert len({*Blocking.threads}) == 1
    assert threading.current_thread() not in Blocking.threads
    (episode,) = await played("blocking/Database-v0")
    assert episode.rollouts[0].final_observation == "1"


async def test_an_environment_of_a_task_is_made_where_it_is_called():
    async with task_env(lg.Task(env_id="blocking/Database-v0")) as env:
        rollout = await lg.run_episode(env, say_a(env), lg.Task(env_id="blocking/Database-v0"))
    assert rollout.final_observation == "1"
    assert Blocking.closed == 1


async def test_an_environment_that_says_it_is_quick_runs_on_the_event_loop():
    await played("blocking/Quick-v0")
    assert {*Blocking.threads} == {threading.current_thread()}


async def test_environments_are_made_one_after_the_other_and_closed_in_the_end():
    made, most = [0], [0]

    def make():
        made[0] += 1
        most[0] = max(most[0], made[0])
        time.sleep(0.01)
        made[0] -= 1
        return Blocking()

    gym.register("blocking/Made-v0", make, disable_env_checker=True)
    await played(*["blocking/Made-v0"] * 4, concurrency=4)
    assert most == [1]
    assert Blocking.closed == 4


async def test_an_environment_that_is_made_too_late_is_closed():
    made = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Late(Blocking):
        def __init__(self):
            time.sleep(0.2)

        def close(self):
            loop.call_soon_threadsafe(made.set)

    gym.register("blocking/Late-v0", Late, disable_env_checker=True)
    (episode,) = await played("blocking/Late-v0", timeout_s=0.05)
    assert episode.error is not None
    async with asyncio.timeout(10):
        await made.wait()


@pytest.mark.parametrize(
    ("env", "quick"),
    [
        (gym.make("ludic/Arithmetic-v0"), True),
        (gym.wrappers.TimeLimit(gym.make("ludic/Arithmetic-v0"), 5), True),
        (gym.wrappers.TransformAction(gym.make("ludic/Arithmetic-v0"), str, TEXT), False),
        (gym.make("ludic/PythonFunctions-v0"), False),
        (gym.make("ludic/MATH-v0"), False),
        (gym.make("FrozenLake-v1"), False),
        (generated_agents_env_v0.env(), False),
    ],
    ids=lambda value: None if isinstance(value, bool) else str(value),
)
def test_calls_are_quick_by_the_environment_and_all_its_wrappers(env, quick):
    assert is_quick(env) is quick


def test_a_person_plays_on_the_thread_that_reads_the_keyboard():
    assert play(Blocking(), read=lambda: "a", write=lambda text: None).total_reward == 1.0
    assert {*Blocking.threads} == {threading.current_thread()}


def test_a_call_that_hangs_does_not_hold_up_the_end_of_the_program():
    program = """
import asyncio, threading
import gymnasium as gym
import ludic_gym as lg

class Hangs(gym.Env):
    observation_space = action_space = gym.spaces.Text(9)

    def reset(self, *, seed=None, options=None):
        threading.Event().wait()

gym.register("x/Hangs-v0", Hangs, disable_env_checker=True)
tasks = [lg.Task(env_id="x/Hangs-v0")]
print(len(asyncio.run(lg.run_bench(tasks, lambda env: None, timeout_s=0.1)).errors))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert (done.stdout, done.returncode) == (b"1\n", 0)
