import sys

import gymnasium as gym
import numpy as np
import pytest

import ludic_gym as lg
from ludic_gym.envs.core.base import (
    TextEnv,
    checked_range,
    end,
    proceed,
    render_text,
)
from ludic_gym.errors import ConfigError, EnvError, EpisodeOver, NoOracle


class Countdown(TextEnv):
    """Any text counts down from 2."""

    def start(self, options):
        self.left = 2
        return "<2>", "Say anything."

    def turn(self, action):
        self.left -= 1
        text = f"<{self.left}>"
        return proceed(text) if self.left else end(text, success=True, reward=1.0)


DICE = """
import ludic_gym as lg

class Dice(lg.TextEnv):
    def start(self, options):
        return "Say a number.", "Reply with a digit."

    def turn(self, action):
        return lg.end(reward=float(action == "6"), success=action == "6")
"""


@pytest.fixture
def dice(tmp_path, monkeypatch):
    # A module of its own, which other processes can import too.
    (tmp_path / "dice_of_test.py").write_text(DICE)
    monkeypatch.syspath_prepend(tmp_path)
    gym.register("me/Dice-v0", "dice_of_test:Dice")
    yield "me/Dice-v0"
    del gym.registry["me/Dice-v0"]
    del sys.modules["dice_of_test"]


@pytest.mark.long
def test_two_methods_make_an_environment_that_keeps_the_contract(dice):
    lg.check_text_env(dice)
    env = gym.make(dice)
    assert env.reset() == ("Say a number.", {"system_prompt": "Reply with a digit."})
    info = {"success": True, "reward/total": 1.0}
    assert env.step("6") == ("", 1.0, True, False, info)


def test_a_step_needs_a_running_episode():
    env = Countdown()
    with pytest.raises(EpisodeOver, match="call reset"):
        env.step("x")
    env.reset()
    with pytest.raises(EnvError, match="got 5 of int"):
        env.step(5)
    env.step("x")
    env.step("x")
    with pytest.raises(EpisodeOver, match="after the end"):
        env.step("x")
    assert env.reset()[0] == "<2>"
    assert env.step("x")[0] == "<1>"


def test_it_renders_the_observation_as_text_or_escaped_html():
    for mode, picture in [("ansi", "<2>"), ("html", "<pre>&lt;2&gt;</pre>")]:
        env = Countdown(render_mode=mode)
        env.reset()
        assert env.render() == picture


def test_rendering_needs_a_mode_and_an_episode():
    with pytest.raises(ConfigError, match="got 'rgb_array'"):
        Countdown(render_mode="rgb_array")
    with pytest.raises(EpisodeOver, match="before the first reset"):
        Countdown(render_mode="ansi").render()
    with pytest.raises(EnvError, match="render_mode="):
        render_text("x", None)


def test_legal_and_best_actions_are_those_of_a_running_episode():
    class Knows(Countdown):
        def allowed_actions(self):
            return ("x", "y")

        def best_action(self):
            return "y"

    env = Knows()
    for _ in range(2):
        assert env.legal_actions() == ()
        with pytest.raises(NoOracle, match="no episode is running"):
            env.oracle_action()
        env.reset()
        assert (env.legal_actions(), env.oracle_action()) == (("x", "y"), "y")
        env.step("x")
        env.step("x")


@pytest.mark.parametrize("row", [-1, 4, "0", 1.0])
def test_a_row_must_be_one_of_the_rows(row):
    env = Countdown()
    env.num_rows = 4
    with pytest.raises(ConfigError, match=f"from 0 to 3, got {row!r}"):
        env.reset(options={"row": row})


@pytest.mark.parametrize("value", ["Say a number.", None, ("a", "b", "c"), ("a", None)])
def test_a_start_that_returns_something_else_is_explained(value):
    class Wrong(Countdown):
        def start(self, options):
            return value

    with pytest.raises(EnvError, match=r"Wrong\.start\(\) returned .*; return an observation and"):
        Wrong().reset()


@pytest.mark.parametrize("value", [None, "text", ("text", 1.0, True, False)])
def test_a_turn_that_returns_something_else_is_explained(value):
    class Wrong(Countdown):
        def turn(self, action):
            return value

    env = Wrong()
    env.reset()
    with pytest.raises(EnvError, match=r"Wrong\.turn\(\) returned .*; return end\(\.\.\.\) or"):
        env.step("x")


def test_an_episode_that_continues_earns_nothing_unless_it_is_given():
    assert proceed("on") == ("on", 0.0, False, False, {})
    turn = proceed("on", 1, {"turn": 2})
    assert turn == ("on", 1.0, False, False, {"turn": 2})
    assert type(turn[1]) is float


def test_the_components_of_an_end_sum_to_its_reward():
    info = {"success": False, "reward/shape": 0.5, "reward/cost": -2.0, "why": "lost"}
    turn = end("done", success=False, info={"why": "lost"}, shape=0.5, cost=-2)
    assert turn == ("done", -1.5, True, False, info)
    assert end("done", success=False, reward=-1.5, info={"why": "lost"}, shape=0.5, cost=-2) == turn


def test_a_reward_without_components_is_one_component():
    assert end(success=True, reward=2) == (
        "", 2.0, True, False, {"success": True, "reward/total": 2.0},
    )  # fmt: skip
    assert end(success=True)[1] == 1.0
    assert end(success=False)[1] == 0.0


def test_an_end_takes_values_of_numpy():
    _, reward, _, _, info = end(success=np.bool_(True), part=np.float32(0.5))
    assert (type(reward), type(info["success"])) == (float, bool)
    assert type(info["reward/part"]) is float


def test_a_reward_that_is_not_the_sum_of_its_components_is_refused():
    message = r"reward=1\.0, but the components sum to 0\.75: \{'shape': 0\.5, 'style': 0\.25\}"
    with pytest.raises(ConfigError, match=message):
        end(success=True, reward=1.0, shape=0.5, style=0.25)


def test_a_misspelt_option_is_refused():
    with pytest.raises(ConfigError, match=r"has the options \['row'\], got \['rwo'\]"):
        Countdown().reset(options={"rwo": 3})


@pytest.mark.parametrize("value", [0, 4, 2.0, "2"])
def test_a_number_outside_its_range_is_refused(value):
    with pytest.raises(ConfigError, match=f"size is an int from 1 to 3, got {value!r}"):
        checked_range("size", value, 1, 3)
