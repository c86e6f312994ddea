import copy
import pickle
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Text
from gymnasium.vector.utils import shared_memory

from ludic_gym.errors import ConfigError, EnvError
from ludic_gym.spaces import TEXT, TextObservation, TextSpace, own_copy

TEXTS = ["", "a\nb\t\0", "é “quoted” 你好", "😀" * 20, "\ud800 lone", np.str_("numpy")]


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_is_in_the_space(text):
    assert text in TextSpace(20)


@pytest.mark.parametrize("thing", ["x" * 21, b"bytes", ["list"], None, 3])
def test_longer_texts_and_other_things_are_not(thing):
    assert thing not in TextSpace(20)


def test_it_is_a_gymnasium_text_space_that_cannot_be_flattened():
    assert isinstance(TEXT, Text)
    assert not TEXT.is_np_flattenable


def test_equal_length_means_equal_space_and_hash():
    assert TextSpace(5) == TextSpace(5) != TextSpace(6)
    assert hash(TextSpace(5)) == hash(TextSpace(5))
    assert TextSpace(5) != Text(5)


def test_samples_are_short_printable_and_decided_by_the_seed():
    first, second = TextSpace(100, seed=3), TextSpace(100, seed=3)
    samples = [first.sample() for _ in range(200)]
    assert samples == [second.sample() for _ in range(200)]
    assert all(1 <= len(text) <= 32 and text.isprintable() and text.isascii() for text in samples)
    assert len(TextSpace(2, seed=0).sample()) <= 2


def test_sampling_with_a_mask_says_what_to_do_instead():
    with pytest.raises(ConfigError, match="legal_actions"):
        TEXT.sample(mask=np.ones(3, np.int8))


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]
)
def test_copies_are_equal_and_sample_alike(copied):
    space = TextSpace(50, seed=1)
    twin = copied(TextSpace(50, seed=1))
    assert twin == space
    assert twin.sample() == space.sample()


def test_an_own_copy_does_not_share_the_generator():
    space = TextSpace(50, seed=1)
    twin = own_copy(space)
    twin.seed(2)
    assert space.sample() == TextSpace(50, seed=1).sample()


def test_an_observation_is_a_text_with_the_dtype_of_its_space():
    observation = pickle.loads(pickle.dumps(TextObservation("x y")))
    assert observation == "x y"
    assert observation in TEXT
    assert observation.dtype == TEXT.dtype


def test_every_text_survives_shared_memory_in_its_own_slot():
    space = TextSpace(20)
    memory = shared_memory.create_shared_memory(space, n=len(TEXTS))
    shared = shared_memory.read_from_shared_memory(space, memory, n=len(TEXTS))
    for index, text in enumerate(TEXTS):
        shared_memory.write_to_shared_memory(space, index, text, memory)
    assert tuple(shared) == tuple(TEXTS)
    assert (shared[-1], shared[1:3], len(shared)) == ("numpy", tuple(TEXTS[1:3]), len(TEXTS))


def test_a_deep_copy_of_shared_texts_does_not_change_any_more():
    space = TextSpace(20)
    memory = shared_memory.create_shared_memory(space)
    shared = shared_memory.read_from_shared_memory(space, memory)
    shared_memory.write_to_shared_memory(space, 0, "a long text", memory)
    kept = copy.deepcopy(shared)
    shared_memory.write_to_shared_memory(space, 0, "new", memory)
    assert (kept, tuple(shared)) == (("a long text",), ("new",))


def test_a_text_too_long_for_its_slot_is_refused():
    space = TextSpace(3)
    memory = shared_memory.create_shared_memory(space, n=2)
    with pytest.raises(EnvError, match="4 characters"):
        shared_memory.write_to_shared_memory(space, 0, "four", memory)


class Echo(gym.Env):
    """Says what it is told, in an episode of two turns."""

    observation_space = TEXT
    action_space = TEXT
    metadata: ClassVar = {"render_modes": []}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return f"start 你好 {self.np_random.random()}", {}

    def step(self, action):
        self.turn += 1
        return f"{self.turn}: {action}", 1.0, self.turn == 2, False, {}


def observations(vector):
    """Observations of three episodes: two to the end, a reset after the end, and one more."""
    seen = [vector.reset(seed=[5, 6])[0]]
    for actions in [("é\n", "😀"), ("\ud800", ""), ("ignored", "ignored"), ("a", "你"), ("b", "c")]:
        seen.append(vector.step(actions)[0])
    seen.append(vector.reset()[0])
    seen.append(vector.step(("after the reset", "\0"))[0])
    vector.close()
    return seen


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_async_vector_envs_show_by_default_what_synchronous_ones_show():
    sync = observations(gym.vector.SyncVectorEnv([Echo, Echo]))
    assert observations(gym.vector.AsyncVectorEnv([Echo, Echo])) == sync
    assert sync[1] == ("1: é\n", "1: 😀")
    assert sync[2] == ("2: \ud800", "2: ")
    assert sync[-1] == ("1: after the reset", "1: \0")


def test_membership_takes_no_longer_for_longer_texts():
    class Unreadable(str):
        def __iter__(self):
            raise AssertionError("the characters were looked at")

    assert Unreadable("x" * 1000) in TEXT
