import asyncio
import time

import gymnasium as gym
import pytest

import ludic_gym as lg
from ludic_gym.bench.result import Tally, score
from ludic_gym.errors import ClientError, EpisodeError, PromptTooLong, SandboxError
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.rollout.outcome import blame_of, outcome
from ludic_gym.types import Completion, Decision, Rollout, Step, Task


def ended(text="", finish="stop", action=None, **step):
    completion = Completion(text=text, finish_reason=finish)
    decision = Decision(action=action, completions=(completion,))
    last = Step(observation="?", decision=decision, reward=0.0, **step)
    return Rollout(task=Task(env_id="mine/Sum-v0"), steps=(last,))


FORFEIT = {"parse_error": True, "success": False}


@pytest.mark.parametrize(
    ("rollout", "word"),
    [
        (ended("5", action="5", terminated=True, info={"success": True}), "success"),
        (ended("6", action="6", terminated=True, info={"success": False}), "failure"),
        (ended("5", action="5", terminated=True), "ended"),
        (ended("5", "length", "5", terminated=True, info={"success": True}), "success"),
        (ended("a5", terminated=True, info=FORFEIT), "illegal"),
        (ended("a5", action="a5", terminated=True, info={"illegal": True}), "illegal"),
        (ended("", terminated=True, info=FORFEIT), "empty"),
        (ended("Let me", "length", terminated=True, info=FORFEIT), "cut_off"),
        (ended("", "content_filter", terminated=True, info=FORFEIT), "filtered"),
        (ended("I can't", "refusal", terminated=True, info=FORFEIT), "refused"),
        # The game took the empty text for an illegal move.
        (ended("", "refusal", "", terminated=True, info={"outcome": "illegal"}), "refused"),
        (ended("5", action="5", terminated=True, info={"outcome": "draw"}), "draw"),
        (ended("5", action="5", truncated=True), "truncated"),
        (ended("", truncated=True, info={"truncation_reason": "max_length"}), "too_long"),
    ],
)
def test_an_end_by_the_model_has_a_word(rollout, word):
    assert outcome(rollout) == word


class Broken(gym.Env):
    """Fails in the way that the first argument names."""

    observation_space = action_space = gym.spaces.Text(50)

    def __init__(self, fault):
        self.fault = fault

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return "go", {}

    def step(self, action):
        if self.fault == "hangs":
            time.sleep(0.3)
        if self.fault == "raises":
            raise KeyError("board")
        reported = {"success": False, "error": self.fault}
        return "go", 0.0, False, self.fault.startswith(("Grader", "Sandbox")), reported


gym.register("blame/Broken-v0", Broken)


def failing(error):
    class Failing(lg.RandomPolicy):
        async def act(self, sampling):
            if error is not None:
                raise error
            await asyncio.sleep(10)

    return Failing


def plays(env):
    return lg.ChatPolicy(lg.ScriptedClient(["5"] * 3))


@pytest.mark.parametrize(
    ("fault", "make_policy", "blame"),
    [
        ("raises", plays, "environment"),
        ("hangs", plays, "environment"),
        ("GraderError: no verdict", plays, "environment"),
        ("SandboxError: no place", plays, "infrastructure"),
        ("", failing(ClientError("status 503")), "infrastructure"),
        ("", failing(KeyError("of the policy")), "infrastructure"),
        ("", failing(None), "infrastructure"),
        ("", failing(PromptTooLong("900 tokens")), "model"),
    ],
)
async def test_an_error_is_blamed_on_what_raised_it_or_hung(fault, make_policy, blame):
    task = Task(env_id="blame/Broken-v0", kwargs={"fault": fault}, max_turns=1)
    (episode,) = [e async for e in run_episodes([task], make_policy, timeout_s=0.1)]
    assert (episode.blame, episode.rollouts) == (blame, ()), episode.error


async def test_an_env_that_cannot_be_made_is_to_blame():
    (episode,) = [e async for e in run_episodes([Task(env_id="blame/No-v0")], plays)]
    assert episode.blame == "environment"


def test_an_env_whose_own_client_or_sandbox_fails_is_not_to_blame():
    assert blame_of(SandboxError("full")) == "infrastructure"
    assert blame_of(EpisodeError("reported", blame="environment")) == "environment"


def test_an_episode_that_the_model_ended_by_an_error_counts_as_a_failure():
    task = Task(env_id="mine/Sum-v0", seed=3)
    errors = [("PromptTooLong: 900 tokens", "model"), ("ClientError: 503", "infrastructure")]
    scores = [
        score(lg.Episode(index=i, task=task, error=error, blame=blame))
        for i, (error, blame) in enumerate(errors)
    ]
    result = Tally(scores).result()
    assert (result.episodes, result.success_rate) == (1, 0.0)
    assert (result.outcomes, result.errors) == ({"too_long": 1}, ((1, "ClientError: 503"),))
    # One of two.
    assert (result.blames, result.dropped) == ({"infrastructure": 1}, 0.5)
