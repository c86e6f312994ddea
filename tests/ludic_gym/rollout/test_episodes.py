import asyncio
import itertools
import re
import threading

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.errors import ConfigError
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.reference import ScriptedPolicy
from ludic_gym.rollout.episodes import env_pool, run_episodes
from ludic_gym.types import Sampling, Task


class CountingEnv(gym.Env[str, str]):
    """Shows its seed; the action "boom" raises, any other ends the episode."""

    metadata = {"render_modes": [], "blocking": False}  # noqa: RUF012
    observation_space = action_space = gym.spaces.Text(1000, min_length=0)
    made = 0
    closed = 0
    test = object()

    def __init__(self, name="plain"):
        self.name = name
        self.test = CountingEnv.test
        CountingEnv.made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return f"{self.name} {seed}", {}

    def step(self, action):
        if action == "boom":
            raise RuntimeError("the env broke")
        return "over", 1.0, True, False, {}

    def close(self):
        # Not those of a test before: an env that blocks is closed on its thread, perhaps late.
        CountingEnv.closed += self.test is CountingEnv.test


class HangingEnv(CountingEnv):
    """Does not say if it blocks, and perhaps does for ever."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, hangs=False):
        super().__init__()
        self.hangs = hangs

    def step(self, action):
        if self.hangs:
            threading.Event().wait()
        return super().step(action)


gym.register("test/Hanging-v0", HangingEnv, disable_env_checker=True, order_enforce=False)
gym.register("test/Counting-v0", CountingEnv, disable_env_checker=True, order_enforce=False)


@pytest.fixture(autouse=True)
def _fresh_counts():
    CountingEnv.made = CountingEnv.closed = 0
    CountingEnv.test = object()


class SlowClient(ScriptedClient):
    """Takes as many loop turns as the dialog's last character says."""

    running = 0
    most = 0

    async def complete(self, messages, sampling, tools=()):
        SlowClient.running += 1
        SlowClient.most = max(SlowClient.most, SlowClient.running)
        try:
            for _ in range(int(messages[-1]["content"][-1])):
                await asyncio.sleep(0)
            return await super().complete(messages, sampling, tools)
        finally:
            SlowClient.running -= 1


def slow_policy(env):
    return ChatPolicy(SlowClient(lambda messages, sampling: f"{sampling.seed}"))


def tasks(count, **kwargs):
    return [Task(env_id="test/Counting-v0", seed=i, **kwargs) for i in range(count)]


async def collect(*args, **kwargs):
    return [episode async for episode in run_episodes(*args, **kwargs)]


async def test_every_task_is_played_once_and_delivered_as_it_ends():
    episodes = await collect(tasks(9)[::-1], slow_policy, concurrency=9)

    # Seed i takes i turns of the loop, and the task at position p has seed 8 - p.
    assert [episode.task.seed for episode in episodes] == list(range(9))
    assert [episode.index for episode in episodes] == list(range(8, -1, -1))
    assert all(episode.error is None for episode in episodes)


async def test_the_same_tasks_give_the_same_rollouts_at_any_concurrency():
    played = tasks(10, sampling=Sampling(seed=5))

    async def rollouts(concurrency):
        episodes = await collect(played, slow_policy, concurrency=concurrency)
        return {episode.index: repr(episode.rollouts) for episode in episodes}

    assert await rollouts(1) == await rollouts(64)


async def test_no_more_episodes_run_at_once_than_asked_for():
    SlowClient.most = 0
    await collect(tasks(10), slow_policy, concurrency=3)

    assert SlowClient.most == 3


async def test_envs_are_made_once_per_arguments_and_closed_in_the_end():
    named = [Task(env_id="test/Counting-v0", kwargs={"name": n}, seed=1) for n in "abab"]
    episodes = await collect(named, lambda env: ScriptedPolicy(["x"]), concurrency=1)

    assert [e.rollouts[0].steps[0].observation for e in episodes] == ["a 1", "b 1", "a 1", "b 1"]
    # Only one env waits to be used again at concurrency 1, so a and b push each other out.
    assert CountingEnv.made == CountingEnv.closed == 4


async def test_a_pool_keeps_its_envs_from_call_to_call_until_it_is_closed():
    envs = env_pool(max_idle=8)
    for _ in range(3):
        await collect(tasks(1), lambda env: ScriptedPolicy(["x"]), envs=envs)
    assert (CountingEnv.made, CountingEnv.closed) == (1, 0)
    envs.close()
    assert CountingEnv.closed == 1


async def test_arguments_of_other_types_never_share_an_env():
    mixed = [Task(env_id="test/Counting-v0", kwargs={"name": n}, seed=0) for n in (1, True, 1.0)]
    episodes = await collect(mixed, lambda env: ScriptedPolicy(["x"]), concurrency=1)

    seen = [episode.rollouts[0].steps[0].observation for episode in episodes]
    assert seen == ["1 0", "True 0", "1.0 0"]


async def test_a_broken_episode_is_named_and_harms_no_other():
    def breaks_for_seed_1(env):
        reply = {"plain 1": "boom"}
        return ChatPolicy(ScriptedClient(lambda m, s: reply.get(m[-1]["content"], "x")))

    episodes = await collect(tasks(4), breaks_for_seed_1, concurrency=1)

    errors = {episode.task.seed: episode.error for episode in episodes}
    assert errors == {0: None, 1: "RuntimeError: the env broke", 2: None, 3: None}
    # The broken env is not used again.
    assert CountingEnv.made == 2


async def test_a_policy_that_cannot_be_made_is_a_failed_episode():
    def broken(env):
        raise TypeError("no such argument")

    (episode,) = await collect(tasks(1), broken)

    assert episode.error == "TypeError: no such argument"


class HangingClient(ScriptedClient):
    """Never answers."""

    cancelled = 0

    async def complete(self, messages, sampling, tools=()):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            HangingClient.cancelled += 1
            raise


async def test_an_episode_that_takes_too_long_is_stopped_and_named():
    HangingClient.cancelled = 0
    hangs_for_seed_0 = [(tasks(1)[0], lambda env: ChatPolicy(HangingClient([]))), *tasks(3)[1:]]

    episodes = await collect(
        hangs_for_seed_0, lambda env: ScriptedPolicy(["x"]), concurrency=1, timeout_s=0.05
    )

    assert [episode.error for episode in episodes] == [
        "EpisodeError: the episode took longer than timeout_s=0.05",
        None,
        None,
    ]
    assert HangingClient.cancelled == 1


async def test_an_env_that_hangs_on_its_thread_fails_its_episode_only():
    hanging = {"env_id": "test/Hanging-v0", "seed": 0}
    pairs = [Task(**hanging, kwargs={"hangs": True}), Task(**hanging)]
    episodes = await collect(pairs, lambda env: ScriptedPolicy(["x"]), timeout_s=0.5)

    errors = {episode.index: episode.error for episode in episodes}
    assert errors == {0: "EpisodeError: the episode took longer than timeout_s=0.5", 1: None}


async def test_without_seeds_no_call_repeats_the_episodes_of_another():
    unseeded = [Task(env_id="ludic/Arithmetic-v0") for _ in range(5)]

    async def questions():
        episodes = await collect(unseeded, lambda env: ScriptedPolicy(["x"]), concurrency=2)
        return [episode.rollouts[0].steps[0].observation for episode in episodes]

    seen = await questions() + await questions()
    assert len(set(seen)) > 5


async def test_a_client_that_cancels_itself_fails_its_episode_only():
    class Cancelled(ScriptedClient):
        async def complete(self, messages, sampling, tools=()):
            raise asyncio.CancelledError("connection closed")

    pairs = [(tasks(1)[0], lambda env: ChatPolicy(Cancelled([]))), *tasks(2)[1:]]
    episodes = await collect(pairs, lambda env: ScriptedPolicy(["x"]), concurrency=1)

    assert [episode.error for episode in episodes] == ["CancelledError: connection closed", None]


async def test_endless_tasks_are_read_only_as_they_are_played():
    read = 0

    def endless():
        nonlocal read
        for i in itertools.count():
            read += 1
            yield Task(env_id="test/Counting-v0", seed=i)

    episodes = run_episodes(endless(), lambda env: ScriptedPolicy(["x"]), concurrency=4)
    taken = [await anext(episodes) for _ in range(10)]
    await episodes.aclose()

    assert len({episode.index for episode in taken}) == 10
    # 10 taken, at most 4 waiting to be taken, at most 4 played.
    assert read <= 18
    assert CountingEnv.made == CountingEnv.closed


async def test_closing_the_stream_early_leaves_nothing_running():
    HangingClient.cancelled = 0
    before = asyncio.all_tasks()
    episodes = run_episodes(
        [(tasks(1)[0], lambda env: ScriptedPolicy(["x"])), *tasks(9)[1:]],
        lambda env: ChatPolicy(HangingClient([])),
        concurrency=4,
    )

    first = await anext(episodes)
    await asyncio.sleep(0)
    await episodes.aclose()

    assert first.index == 0
    assert asyncio.all_tasks() == before
    # Each of the 4 workers was waiting for the client.
    assert HangingClient.cancelled == 4
    assert CountingEnv.made == CountingEnv.closed


async def test_an_error_in_the_tasks_themselves_ends_the_stream():
    def broken():
        yield from tasks(2)
        raise ValueError("no more rows")

    with pytest.raises(ValueError, match="no more rows"):
        await collect(broken(), lambda env: ScriptedPolicy(["x"]))


@pytest.mark.parametrize(("concurrency", "most"), [(100, 64), (3, 3)])
async def test_a_slow_caller_holds_back_all_but_64_episodes(concurrency, most):
    read = itertools.count()
    numbered = (Task(env_id="test/Counting-v0", seed=next(read)) for _ in range(1_000))
    episodes = run_episodes(numbered, lambda env: ScriptedPolicy(["x"]), concurrency=concurrency)
    await anext(episodes)
    # Until every worker waits for the caller.
    for _ in range(10):
        await asyncio.sleep(0)
    # These policies wait for nothing: the first worker has played what may wait.
    assert next(read) == most
    await episodes.aclose()


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"timeout_s": 0.0}])
def test_options_that_cannot_work_are_refused_at_once(wrong):
    with pytest.raises(ConfigError, match="got 0"):
        run_episodes([], slow_policy, **wrong)


async def test_a_keyboard_interrupt_is_not_an_episode_error():
    def interrupted(env):
        raise KeyboardInterrupt

    def run():
        asyncio.run(collect(tasks(1), interrupted))

    with pytest.raises(KeyboardInterrupt):
        await asyncio.to_thread(run)


@pytest.mark.parametrize("item", ["ludic/Arithmetic-v0", None, ("ludic/Arithmetic-v0", {})])
async def test_what_is_no_task_is_refused_by_its_value(item):
    with pytest.raises(ConfigError, match=re.escape(f"tasks holds {item!r}; it takes a Task")):
        async for _ in run_episodes([item], lambda env: ScriptedPolicy(["1"])):
            pass
