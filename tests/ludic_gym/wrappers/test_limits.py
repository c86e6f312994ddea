import pytest

from ludic_gym.envs.core.base import TextEnv, end, proceed
from ludic_gym.errors import ConfigError
from ludic_gym.wrappers.common import TurnLimit, cut_short


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


def test_an_episode_that_ends_with_its_last_turn_is_not_truncated():
    env = TurnLimit(Walk(), 2)
    env.reset()
    env.step("on")
    assert env.step("stop")[2:] == (True, False, {"success": True, "reward/home": 1.0})


def test_components_that_there_are_stay():
    assert cut_short({"reward/a": 0.5, "turn": 3}, 0.5, "why") == {
        "reward/a": 0.5,
        "turn": 3,
        "success": False,
        "truncation_reason": "why",
    }


@pytest.mark.parametrize("limit", [1, 0, 2.5])
def test_a_limit_below_two_is_refused(limit):
    with pytest.raises(ConfigError, match=f"at least 2, got {limit}"):
        TurnLimit(Walk(), limit)
