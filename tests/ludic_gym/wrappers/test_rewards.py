import pytest

from ludic_gym.envs.core.base import TextEnv, end, proceed
from ludic_gym.errors import ConfigError, EnvError
from ludic_gym.wrappers.common import WeighRewards


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


def test_a_turn_that_earns_nothing_needs_no_components():
    env = WeighRewards(Parts(), {"style": 2, "right": 1})
    env.reset()
    assert env.step("on") == ("?", 0.0, False, False, {})


def test_a_misspelt_name_is_noticed():
    with pytest.raises(ConfigError, match=r"\(right, style\), only for style, rihgt; name it"):
        last_turn(WeighRewards(Parts(), {"style": 1, "rihgt": 1}))


def test_a_reward_without_components_cannot_be_weighed():
    with pytest.raises(EnvError, match=r"returned the reward 1.5 without components"):
        last_turn(WeighRewards(Parts(), {}, default=1), "mute")
