"""Episodes on which a grader reached no verdict."""

import asyncio

import gymnasium as gym
import pytest

import ludic_gym as lg
from ludic_gym.envs.questions.qa import QAEnv

ROWS = [{"question": "1 + 1?", "answer": "2"}]


def never(reply, truth):
    raise lg.GraderError(f"no verdict on {reply!r}")


def rubric():
    return lg.Rubric((lg.Component("right", lg.by_program(never)),))


@pytest.mark.parametrize("grader", [never, rubric()], ids=["function", "rubric"])
def test_an_episode_without_a_verdict_is_truncated_and_names_the_reason(grader):
    env = QAEnv(ROWS, prompt="Add.", grader=grader)
    env.reset(seed=0)
    _, _, terminated, truncated, info = env.step("2")
    assert (terminated, truncated) == (False, True)
    assert info["grader_error"] == "no verdict on '2'"
    assert "reward/correct" not in info


def test_rollouts_report_it_as_a_failure_without_a_reward():
    if "test/Ungraded-v0" not in gym.registry:
        QAEnv(ROWS, prompt="Add.", grader=never).register("test/Ungraded-v0")

    async def episode():
        tasks = [lg.Task(env_id="test/Ungraded-v0", seed=0)]
        policy = lg.ChatPolicy(lg.ScriptedClient(["2"]))
        return await anext(lg.run_episodes(tasks, lambda env: policy))

    played = asyncio.run(episode())
    assert played.rollouts == ()
    assert "GraderError: no verdict on '2'" in played.error


def test_a_rubric_fails_its_own_episode_alone():
    async def graded():
        tasks = [lg.Task(env_id="ludic/Arithmetic-v0", seed=seed) for seed in range(2)]
        episodes = lg.run_episodes(tasks, lg.OraclePolicy)
        return [each async for each in lg.graded_episodes(episodes, rubric())]

    for episode in asyncio.run(graded()):
        assert episode.rollouts == ()
        assert episode.error.startswith("GraderError: no verdict on")
