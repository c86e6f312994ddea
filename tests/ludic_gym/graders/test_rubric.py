import asyncio
import threading
import time
from functools import partial

import pytest

from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.errors import ConfigError
from ludic_gym.graders.extract import Exchange, Grade
from ludic_gym.graders.judge import grade_by_judge
from ludic_gym.graders.numeric import grade_number
from ludic_gym.graders.rubric import (
    Component,
    Rubric,
    by_program,
    graded_episode,
    graded_episodes,
    graded_rollout,
)
from ludic_gym.policies.reference import ScriptedPolicy
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.types import Decision, Episode, Rollout, Step, Task


async def is_long(exchange):
    return Grade(len(exchange.answer) > 20, exchange.answer, "length")


RIGHT = Component("right", by_program(grade_number))
SHORT = Component("long", is_long, -0.5)
RUBRIC = Rubric((RIGHT, SHORT))


@pytest.mark.parametrize(
    ("answer", "rewards", "success"),
    [
        ("4", {"right": 1.0, "long": 0.0}, True),
        ("5", {"right": 0.0, "long": 0.0}, False),
        ("Well, <answer>4</answer>", {"right": 1.0, "long": -0.5}, False),
        ("x" * 30, {"right": 0.0, "long": -0.5}, False),
    ],
)
def test_components_earn_their_weights(answer, rewards, success):
    result = asyncio.run(RUBRIC.grade(Exchange("2 + 2?", answer, "4")))
    assert (result.rewards, result.success) == (rewards, success)
    assert result.total == sum(rewards.values())
    assert result.grades["long"].rule == "length"


@pytest.mark.parametrize(
    "components",
    [(), (RIGHT, RIGHT), (Component("", is_long),), (Component("a", is_long, 0.0),),
     (Component("a", is_long, float("nan")),)],
)  # fmt: skip
def test_names_differ_and_weights_count(components):
    with pytest.raises(ConfigError, match="got"):
        Rubric(components)


def rollout(answer, reward=0.25):
    first = Step(observation="hi", decision=Decision(action="x"), reward=0.5)
    last = Step(
        observation="2 + 2?",
        decision=Decision(action=answer, reward=0.125),
        reward=reward,
        terminated=True,
        info={"truth": "4", "success": False, "reward/correct": 0.125, "row": 3},
    )
    return Rollout(task=Task(env_id="x"), steps=(first, last))


def test_a_rubric_replaces_what_the_env_gave_for_the_last_step():
    graded = asyncio.run(graded_rollout(rollout("4"), RUBRIC))
    # The decision's own 0.125 for its format stays.
    assert [step.reward for step in graded.steps] == [0.5, 1.125]
    assert graded.steps[-1].info == {
        "truth": "4",
        "row": 3,
        "success": True,
        "reward/right": 1.0,
        "reward/long": 0.0,
        "rule/right": "bare",
        "rule/long": "length",
    }


@pytest.mark.parametrize(("replies", "blame"), [(["?"] * 2, "environment"), ([], "infrastructure")])
async def test_an_episode_without_a_verdict_has_failed_and_earns_no_0(replies, blame):
    judge = Component("kind", partial(grade_by_judge, ScriptedClient(replies)))
    played = rollout("4")
    episode = Episode(index=0, task=played.task, rollouts=(played,))
    graded = await graded_episode(episode, Rubric((judge,)))
    assert (graded.rollouts, graded.blame) == ((), blame)


async def test_episodes_are_graded_as_they_end():
    tasks = [Task(env_id="ludic/Arithmetic-v0", seed=seed) for seed in range(9)]
    played = run_episodes(tasks, lambda env: ScriptedPolicy(["80"]), concurrency=4)
    graded = [e async for e in graded_episodes(played, RUBRIC, concurrency=2)]
    assert sorted(episode.index for episode in graded) == list(range(9))
    # Seed 0 asks for 67 + 13.
    rewards = {e.index: e.rollouts[0].total_reward for e in graded}
    assert rewards[0] == 1.0
    assert sum(rewards.values()) == 1.0


async def test_an_episode_that_failed_passes_as_it_is():
    async def one():
        yield failed

    failed = Episode(index=0, task=Task(env_id="x"), error="the env failed")
    assert [e async for e in graded_episodes(one(), RUBRIC)] == [failed]


async def test_grading_leaves_nothing_running_when_it_is_given_up():
    never = Component("never", lambda exchange: asyncio.Event().wait())

    async def some():
        for index in range(3):
            yield Episode(index=index, task=Task(env_id="x"), rollouts=(rollout("4"),))

    stream = graded_episodes(some(), Rubric((never,)))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream), 0.05)
    await stream.aclose()
    assert len(asyncio.all_tasks()) == 1


def test_a_program_that_hangs_does_not_hold_up_the_end_of_the_loop():
    go_on = threading.Event()

    def hangs(reply, truth):
        go_on.wait(60)

    async def given_up():
        rubric = Rubric((Component("value", by_program(hangs)),))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await rubric.grade(Exchange("1 + 1?", "2", truth="2"))

    start = time.monotonic()
    asyncio.run(given_up())
    go_on.set()
    assert time.monotonic() - start < 30
