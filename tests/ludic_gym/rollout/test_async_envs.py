"""Environments whose methods are coroutines, played by a real event loop."""

import asyncio
import gc
from contextlib import aclosing

import gymnasium as gym
import pytest

import ludic_gym as lg
from ludic_gym.adapters.skyrl_environment import SkyRLGame
from ludic_gym.adapters.trl_environment import TRLEnvironment
from ludic_gym.play import play
from ludic_gym.rollout.pool import close


class Server:
    """An asyncio server that returns every line it gets, in capitals, after `delay_s`."""

    def __init__(self, delay_s=0.0):
        self.delay_s = delay_s
        self.open = self.most = 0
        self.cancelled = 0

    async def ask(self, text):
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await asyncio.sleep(self.delay_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.open -= 1
        return text.upper()


SERVER = Server()


class Shout(lg.TextEnv):
    """Two turns; "boom" raises, "odd" returns no turn."""

    single_turn = False

    async def start(self, options):
        self.said = []
        return await SERVER.ask("begin"), "Shout."

    async def turn(self, action):
        reply = await SERVER.ask(action)
        if action == "boom":
            raise RuntimeError("it broke")
        if action == "odd":
            return "odd"
        self.said.append(reply)
        if len(self.said) < 2:
            return lg.proceed(reply)
        return lg.end(" ".join(self.said), success=True, reward=1.0)


class Plain(gym.Env):
    """A plain Gymnasium environment of one turn, with an asynchronous `close`."""

    observation_space = action_space = gym.spaces.Text(100, min_length=0)
    closed = 0

    async def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return await SERVER.ask(f"seed {seed}"), {"system_prompt": "Shout."}

    async def step(self, action):
        reply = await SERVER.ask(action)
        return reply, 1.0, True, False, {"success": True}

    async def close(self):
        await SERVER.ask("bye")
        Plain.closed += 1


class Question(Plain):
    single_turn = True


gym.register("async/Shout-v0", Shout)
gym.register("async/Bare-v0", Shout, disable_env_checker=True, order_enforce=False)
gym.register("async/Plain-v0", Plain)
gym.register("async/Question-v0", Question)
gym.register("async/Limited-v0", Plain, max_episode_steps=5)
IDS = ["async/Shout-v0", "async/Bare-v0", "async/Plain-v0"]


@pytest.fixture(autouse=True)
def _fresh_server():
    SERVER.__init__()
    Plain.closed = 0
    yield
    # A coroutine that nothing awaited would warn here, which is an error.
    gc.collect()


def scripted(*actions):
    return lambda env: lg.ScriptedPolicy(list(actions))


async def played(env_id, policy, count=1, **options):
    tasks = [lg.Task(env_id=env_id, seed=seed) for seed in range(count)]
    return [episode async for episode in lg.run_episodes(tasks, policy, **options)]


async def test_hooks_of_a_text_env_are_awaited():
    (episode,) = await played("async/Shout-v0", scripted("hi", "you"))
    (rollout,) = episode.rollouts
    assert [step.observation for step in rollout.steps] == ["BEGIN", "HI"]
    assert (rollout.final_observation, rollout.total_reward) == ("HI YOU", 1.0)


async def test_a_plain_env_is_awaited_and_its_close_too():
    episodes = await played("async/Plain-v0", scripted("hi"), count=3, concurrency=2)
    texts = {e.rollouts[0].steps[0].observation for e in episodes}
    assert texts == {"SEED 0", "SEED 1", "SEED 2"}
    assert all(e.rollouts[0].final_observation == "HI" for e in episodes)
    assert Plain.closed == 2
    assert SERVER.open == 0


@pytest.mark.parametrize("env_id", IDS)
async def test_episodes_wait_at_the_same_time(env_id):
    SERVER.delay_s = 0.02
    episodes = await played(env_id, scripted("a", "b"), count=8, concurrency=8)
    assert [e.error for e in episodes] == [None] * 8
    assert SERVER.most == 8


@pytest.mark.parametrize("env_id", IDS)
async def test_a_call_that_takes_too_long_is_cancelled(env_id):
    SERVER.delay_s = 0.05 if env_id == "async/Plain-v0" else 30
    (episode,) = await played(env_id, scripted("a", "b"), timeout_s=0.02)
    assert "took longer than timeout_s=0.02" in episode.error
    assert (SERVER.cancelled, SERVER.open) == (1, 0)


async def test_closing_the_stream_cancels_calls_and_leaves_nothing_running():
    SERVER.delay_s = 30
    tasks = [lg.Task(env_id="async/Shout-v0", seed=seed) for seed in range(4)]
    before = asyncio.all_tasks()
    async with aclosing(lg.run_episodes(tasks, scripted("a", "b"))) as episodes:
        waiting = asyncio.ensure_future(anext(episodes))
        while SERVER.open < 4:
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert (SERVER.cancelled, SERVER.open) == (4, 0)
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    ("action", "message"),
    [("boom", "RuntimeError: it broke"), ("odd", r"EnvError: Shout.turn() returned 'odd'; return")],
)
async def test_an_error_of_a_coroutine_fails_its_episode_only(action, message):
    tasks = [lg.Task(env_id="async/Shout-v0", seed=seed) for seed in range(2)]
    jobs = [(tasks[0], scripted(action)), (tasks[1], scripted("a", "b"))]
    errors = {e.index: e.error async for e in lg.run_episodes(jobs, scripted())}
    assert errors[0].startswith(message)
    assert errors[1] is None


def test_an_env_is_closed_where_no_event_loop_runs():
    close(gym.make("async/Plain-v0"))
    assert Plain.closed == 1


def test_an_asynchronous_environment_can_be_played_by_hand():
    actions, pages = iter(["a", "b"]), []
    rollout = play(gym.make("async/Shout-v0"), read=lambda: next(actions), write=pages.append)
    assert rollout.final_observation == "A B"


def test_a_wrapper_that_cannot_await_is_named():
    result = lg.evaluate("async/Limited-v0", scripted("hi"), episodes=1, progress=False)
    ((_, error),) = result.errors
    assert error.startswith("EnvError: TimeLimit cannot await <Plain")
    assert "Task(max_turns=...)" in error


@pytest.mark.parametrize(
    ("make", "user"),
    [
        (lambda: TRLEnvironment("async/Shout-v0"), "TRLEnvironment"),
        (lambda: SkyRLGame(extras={"env_id": "async/Shout-v0"}), "SkyRLGame"),
    ],
)
def test_callers_that_cannot_await_refuse_at_once(make, user):
    with pytest.raises(lg.EnvError, match=f"{user} cannot await .* play it with run_episodes"):
        make()
