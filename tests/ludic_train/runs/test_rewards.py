"""Rewards of a run's own."""

import asyncio
import threading
from functools import partial

import numpy as np
import pytest
import torch

from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.errors import ConfigError, EnvError
from ludic_gym.graders.extract import Grade
from ludic_gym.graders.judge import grade_by_judge
from ludic_gym.graders.rubric import Component, Rubric, by_program
from ludic_gym.policies.reference import RandomPolicy
from ludic_gym.types import Decision, Episode, Rollout, Step, Task
from ludic_train.runs.rewards import score_of
from ludic_train.sources.rollouts import TaskPlayer, playing, scored

ROLLOUT = Rollout(
    task=Task(env_id="x"),
    steps=(
        Step(observation="a", decision=Decision(action="1", reward=0.1), reward=0.6),
        Step(observation="b", decision=Decision(action="22", reward=-0.5), reward=0.5),
    ),
)


def letters(rollout):
    return float(sum(len(step.decision.action or "") for step in rollout.steps))


async def awaited(rollout):
    return letters(rollout)


@pytest.mark.parametrize("reward", [letters, awaited, "test_rewards_module:letters"])
async def test_a_function_replaces_the_env_s_rewards_and_keeps_the_parser_s(
    reward, tmp_path, monkeypatch
):
    (tmp_path / "test_rewards_module.py").write_text("def letters(rollout):\n    return 3\n")
    monkeypatch.chdir(tmp_path)
    scored = await score_of(reward)(ROLLOUT)
    assert [step.reward for step in scored.steps] == [0.1, -0.5 + 3]


async def test_a_rubric_is_a_reward():
    def right(text, truth):
        return Grade(correct=text == "22", answer=text, rule="r")

    rubric = Rubric((Component("right", by_program(right), 2.0),))
    scored = await score_of(rubric)(ROLLOUT)
    assert scored.steps[-1].reward == -0.5 + 2.0


@pytest.mark.parametrize(
    ("replies", "blame"), [(["?", "?"], "environment"), ([], "infrastructure")]
)
async def test_a_judge_without_a_verdict_drops_the_episode(replies, blame):
    judge = partial(grade_by_judge, ScriptedClient(replies))
    graded = score_of(Rubric((Component("kind", judge),)))
    episode = Episode(index=0, task=ROLLOUT.task, rollouts=(ROLLOUT,))
    dropped = await scored(episode, graded)
    assert (dropped.rollouts, dropped.blame) == ((), blame)


@pytest.mark.parametrize("value", [2, np.float32(2), np.int64(2), np.array(2.0), torch.tensor(2.0)])
async def test_a_reward_may_be_a_number_of_any_kind(value):
    scored = await score_of(lambda rollout: value)(ROLLOUT)
    assert scored.steps[-1].reward == -0.5 + 2


async def test_a_function_that_blocks_does_not_hold_up_the_loop():
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def reward(rollout):
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(30)
        return 1

    scoring = asyncio.ensure_future(score_of(reward)(ROLLOUT))
    await begun.wait()
    go_on.set()
    assert (await scoring).steps[-1].reward == -0.5 + 1


@pytest.mark.parametrize("value", [float("nan"), np.float32("inf"), "1", None])
async def test_a_reward_that_is_no_number_is_refused(value):
    with pytest.raises(EnvError, match="a reward function returned"):
        await score_of(lambda rollout: value)(ROLLOUT)


@pytest.mark.parametrize("reward", ["no-colon", "nothing_here:f", "ludic_gym.types:nothing", 3])
def test_a_reward_that_is_none_is_refused(reward):
    with pytest.raises(ConfigError, match=r"reward=|names the module"):
        score_of(reward)


async def test_played_episodes_get_the_score():
    player = TaskPlayer(playing(RandomPolicy, score_of(letters)), concurrency=2)
    tasks = [Task(env_id="ludic/TicTacToe-v0", seed=seed) for seed in range(3)]
    episodes = await player.episodes(tasks)
    player.close()
    for episode in episodes:
        (rollout,) = episode.rollouts
        assert rollout.total_reward == 2 * len(rollout.steps)
