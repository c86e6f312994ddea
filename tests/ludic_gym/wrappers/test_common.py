import json

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.core.base import TextEnv, end, proceed
from ludic_gym.errors import ConfigError, EnvError
from ludic_gym.wrappers.common import Curriculum, TurnLimit, WeighRewards


class Walk(TextEnv):
    """A quarter for every step; "stop" ends it."""

    def start(self, options):
        return "go", ""

    def turn(self, action):
        if action == "stop":
            return end("home", success=True, home=1.0)
        return proceed("on", 0.25)


def test_the_last_turn_that_is_allowed_is_truncated_and_says_why():
    env = TurnLimit(Walk(), 2)
    for _ in range(2):
        env.reset()
        assert env.step("on") == ("on", 0.25, False, False, {})
        assert env.step("on") == (
            "on",
            0.25,
            False,
            True,
            {"success": False, "reward/unfinished": 0.25, "truncation_reason": "max_turns"},
        )


@pytest.mark.parametrize("limit", [1, 0, 2.5])
def test_a_limit_below_two_is_refused(limit):
    with pytest.raises(ConfigError, match=f"at least 2, got {limit}"):
        TurnLimit(Walk(), limit)


class Parts(TextEnv):
    """Half for style, one for being right; "mute" earns something without saying for what."""

    def start(self, options):
        return "?", ""

    def turn(self, action):
        if action == "on":
            return proceed("?")
        if action == "mute":
            return "", 1.5, True, False, {}
        return end(success=True, style=0.5, right=1.0)


def last_turn(env, action="right"):
    env.reset()
    env.step("on")
    return env.step(action)


def test_components_are_weighed_and_still_sum_to_the_reward():
    # 0.5 * 2 - 1 * 0.25
    _, reward, _, _, info = last_turn(WeighRewards(Parts(), {"style": 2, "right": -0.25}))
    assert reward == 0.75
    assert info == {"success": True, "reward/style": 1.0, "reward/right": -0.25}


def test_weights_multiply_from_wrapper_to_wrapper():
    env = WeighRewards(WeighRewards(Parts(), {}, default=3), {"right": 2}, default=0)
    assert last_turn(env)[1] == 6.0


def test_a_misspelt_name_is_noticed():
    with pytest.raises(ConfigError, match=r"\(right, style\), only for style, rihgt; name it"):
        last_turn(WeighRewards(Parts(), {"style": 1, "rihgt": 1}))


def test_a_reward_without_components_cannot_be_weighed():
    with pytest.raises(EnvError, match=r"returned the reward 1.5 without components"):
        last_turn(WeighRewards(Parts(), {}, default=1), "mute")


STAGES = ({"digits": 1}, {"digits": 3}, {"digits": 6})
SUMS = "ludic/Arithmetic-v0"


def sums(**options):
    return Curriculum(gym.make(SUMS), STAGES, threshold=0.5, window=4, **options)


def answer(env, *, right, seed=None):
    """Play an episode: the stage it was in, and the last info."""
    _, first = env.reset(seed=seed)
    info = env.step(env.unwrapped.oracle_action() if right else "no")[4]
    assert info["stage"] == first["stage"]
    return info["stage"]


def answers(env, pattern):
    return [answer(env, right=letter == "y") for letter in pattern]


def test_the_next_stage_comes_once_half_of_the_last_four_are_solved():
    env = sums()
    # Three episodes are too few; of the first four one is solved, of 2 to 5 two.
    assert answers(env, "nnyny") == [0, 0, 0, 0, 0]
    # The count starts anew in every stage, and the last one stays.
    assert answers(env, "yyyy") == [1, 1, 1, 1]
    assert answers(env, "yyyyy") == [2, 2, 2, 2, 2]


def test_a_stage_has_its_own_arguments():
    env = sums()
    env.reset()
    assert len(env.unwrapped.oracle_action()) <= 2
    answers(env, "yyyyyyyy")
    env.reset()
    assert len(env.unwrapped.oracle_action()) >= 6


def test_state_goes_through_json_and_on():
    env, again = sums(), sums()
    answers(env, "yyyyn")
    again.restore(json.loads(json.dumps(env.state())))
    assert again.stage == env.stage == 1
    # The failure before the copy counts: two of the last four are solved after "nyy".
    assert answers(again, "nyyy") == answers(env, "nyyy") == [1, 1, 1, 2]


def test_chance_goes_on_over_the_stages():
    one, other = sums(), sums()
    one.reset(seed=5)
    other.reset(seed=5)
    answers(one, "yyyy")
    answers(other, "yyyy")
    assert one.reset()[0] == other.reset()[0]


class Mute(TextEnv):
    def start(self, options):
        return "?", ""

    def turn(self, action):
        return "", 0.0, True, False, {}


def test_without_success_there_is_nothing_to_go_by():
    gym.register("mute/Mute-v0", f"{__name__}:Mute")
    env = Curriculum(gym.make("mute/Mute-v0"), [{}])
    del gym.registry["mute/Mute-v0"]
    env.reset()
    with pytest.raises(EnvError, match=r'has no info\["success"\]'):
        env.step("")


class Unjudged(TextEnv):
    def start(self, options):
        return "?", ""

    def turn(self, action):
        return end(success=False, truncated=True, info={"error": "the judge is down"})


def test_an_episode_that_failed_does_not_count():
    gym.register("mute/Unjudged-v0", f"{__name__}:Unjudged")
    env = Curriculum(gym.make("mute/Unjudged-v0", disable_env_checker=True), [{}], window=2)
    del gym.registry["mute/Unjudged-v0"]
    env.reset()
    env.step("")
    assert env.state() == {"stage": 0, "successes": []}


@pytest.mark.parametrize(
    ("stages", "options"),
    [([], {}), (STAGES, {"threshold": 0}), (STAGES, {"threshold": 2}), (STAGES, {"window": 0})],
)
def test_what_cannot_work_is_refused(stages, options):
    with pytest.raises(ConfigError, match="at least one stage, a threshold"):
        Curriculum(gym.make(SUMS), stages, **options)


def test_an_environment_without_a_spec_or_a_stage_there_is_not_is_refused():
    with pytest.raises(ConfigError, match=r"make it by gymnasium\.make"):
        Curriculum(Mute(), STAGES)
    with pytest.raises(ConfigError, match="stage is from 0 to 2, got 3"):
        sums().restore({"stage": 3, "successes": []})
