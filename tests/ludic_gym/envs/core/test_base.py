import copy
import pickle

import numpy as np
import pytest

from ludic_gym.envs.core.base import TextEnv, checked_choice, ending, pick, rendered
from ludic_gym.errors import ConfigError, EnvError, EpisodeOver, NoOracle


class Countdown(TextEnv):
    """Any text counts down from 2."""

    def _start(self, options):
        self._row(options)
        self.left = 2
        return "<2>", {"system_prompt": "Say anything."}

    def _advance(self, action):
        self.left -= 1
        done = self.left == 0
        return f"<{self.left}>", float(done), done, False, ending(success=True) if done else {}


def test_a_step_needs_a_running_episode():
    env = Countdown()
    with pytest.raises(EpisodeOver, match="call reset"):
        env.step("x")
    env.reset()
    env.step("x")
    env.step("x")
    with pytest.raises(EpisodeOver, match="after the end"):
        env.step("x")
    assert env.reset()[0] == "<2>"
    assert env.step("x")[0] == "<1>"


def test_an_action_that_is_no_text_is_an_error_of_the_caller():
    env = Countdown()
    env.reset()
    with pytest.raises(EnvError, match="got 5 of int"):
        env.step(5)


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
        rendered("x", None)


def test_an_env_knows_no_actions_and_no_oracle_unless_it_says_so():
    env = Countdown()
    env.reset()
    assert env.legal_actions() == ()
    with pytest.raises(NoOracle, match="Countdown"):
        env.oracle_action()


def test_an_env_without_rows_refuses_a_row():
    with pytest.raises(ConfigError, match="no row 3"):
        Countdown().reset(options={"row": 3})


@pytest.mark.parametrize("row", [-1, 4, "0", 1.0])
def test_a_row_must_be_one_of_the_rows(row):
    env = Countdown()
    env.num_rows = 4
    with pytest.raises(ConfigError, match=f"from 0 to 3, got {row!r}"):
        env.reset(options={"row": row})


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_in_mid_episode_goes_on_by_itself(copied):
    env = Countdown()
    env.reset(seed=1)
    env.step("x")
    twin = copied(env)
    assert env.step("x")[0] == "<0>"
    assert twin.step("x")[0] == "<0>"
    assert twin.np_random.random() == env.np_random.random()


def test_an_ending_names_its_components():
    assert ending(success=False, shape=0.5, cost=-1.0) == {
        "success": False,
        "reward/shape": 0.5,
        "reward/cost": -1.0,
    }


def test_pick_takes_each_item_about_as_often():
    rng = np.random.default_rng(0)
    counts = np.bincount([pick(rng, range(4)) for _ in range(4000)])
    # 1000 each is expected, with a standard deviation of 27.
    assert counts.min() > 890
    assert counts.max() < 1110


def test_a_choice_outside_the_choices_shows_them():
    with pytest.raises(ConfigError, match="seat is one of first, second, got 'third'"):
        checked_choice("seat", "third", ("first", "second"))


def test_a_misspelt_option_is_refused():
    with pytest.raises(ConfigError, match=r"knows the options \['row'\], got \['rwo'\]"):
        Countdown().reset(options={"rwo": 3})
