import copy

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.envs.core.base import TextEnv, end, proceed
from ludic_gym.errors import ConfigError
from ludic_gym.wrappers.messages import MESSAGES, ChatMessages, MessagesSpace

texts = st.text(st.characters(codec=None))
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"])}).flatmap(
        lambda m: texts.map(lambda text: m | {"content": text})
    ),
    max_size=4,
).map(tuple)


class Echo(TextEnv):
    def start(self, options):
        return "hello", "Say something."

    def turn(self, action):
        text = action.upper()
        return end(text, success=True, done=1.0) if action == "bye" else proceed(text)


def test_the_dialog_grows_turn_by_turn():
    env = ChatMessages(Echo())
    first, _ = env.reset()
    assert first == (
        {"role": "system", "content": "Say something."},
        {"role": "user", "content": "hello"},
    )
    second = env.step("hi")[0]
    assert second == (
        *first,
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "HI"},
    )
    assert env.reset()[0] == first


@pytest.mark.parametrize(("given_prompt", "shown"), [("Be brief.", ["Be brief."]), ("", [])])
def test_a_system_prompt_that_is_given_wins(given_prompt, shown):
    dialog, _ = ChatMessages(Echo(), given_prompt).reset()
    assert [m["content"] for m in dialog if m["role"] == "system"] == shown


def test_a_caller_may_change_what_it_got():
    env = ChatMessages(Echo())
    dialog, _ = env.reset()
    dialog[0]["content"] = "changed"
    assert env.step("hi")[0][0]["content"] == "Say something."


def test_a_dialog_that_becomes_too_long_is_cut_off():
    env = ChatMessages(Echo())
    dialog, _ = env.reset()
    shown, reward, terminated, truncated, info = env.step("x" * 200_000)
    assert (shown, reward, terminated, truncated) == (dialog, 0.0, False, True)
    assert info["truncation_reason"] == "dialog_length"
    assert shown in env.observation_space


def test_only_text_can_become_messages():
    with pytest.raises(ConfigError, match="has observations in Discrete"):
        ChatMessages(gym.make("FrozenLake-v1"))


@given(messages)
def test_dialogs_are_in_the_space(dialog):
    assert dialog in MESSAGES


@pytest.mark.parametrize(
    "x",
    [
        [{"role": "user", "content": "a list"}],
        ({"role": "tool", "content": "no such role"},),
        ({"role": "user", "content": None},),
        ({"role": "user"},),
        ({"role": "user", "content": "x", "name": "too much"},),
        ({"role": "user", "content": "x" * 85},),
        "text",
    ],
)
def test_other_things_are_not_in_the_space(x):
    assert x not in MessagesSpace(100)


def test_the_space_samples_compares_and_copies():
    space = MessagesSpace(1000, seed=3)
    assert space.sample() in space
    assert copy.deepcopy(space) == space != MessagesSpace(999)
    assert MessagesSpace(1000, seed=4).sample() == MessagesSpace(1000, seed=4).sample()
    assert (repr(space), space.is_np_flattenable) == ("MessagesSpace(1000)", False)
    assert len({space, MessagesSpace(1000)}) == 1
    with pytest.raises(ConfigError, match="cannot sample with a mask"):
        space.sample(mask=1)
