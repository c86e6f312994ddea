"""Generators of seeds: NumPy's streams, whichever way they are made."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.seeding import checked_seed, expanded, generator


def state(rng: np.random.Generator) -> object:
    return rng.bit_generator.state


@given(st.integers(0, 2**32 - 1))
def test_the_state_of_any_seed_is_numpys(seed: int) -> None:
    words = np.random.SeedSequence(seed).generate_state(4, np.uint64)
    assert (expanded(np.array([seed], np.uint32))[0] == words).all()


@given(st.integers(0, 2**32) | st.integers(0, 2**130), st.integers(0, 700))
def test_neighbouring_seeds_have_numpys_generators(first: int, apart: int) -> None:
    for seed in (first, first + apart, first + 1, first):
        assert state(generator(seed)) == state(np.random.default_rng(seed))


def expanded_generator() -> np.random.Generator:
    generator(10_000)
    return generator(10_001)


def test_a_second_seed_of_a_block_is_not_expanded_by_numpy() -> None:
    assert type(expanded_generator().bit_generator.seed_seq) is not np.random.SeedSequence


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda rng: pickle.loads(pickle.dumps(rng))])
def test_copies_continue_the_stream(copied) -> None:
    rng, numpys = expanded_generator(), np.random.default_rng(10_001)
    assert rng.random() == numpys.random()
    twin = copied(rng)
    assert twin.random() == rng.random() == numpys.random()
    assert type(twin.bit_generator.seed_seq) is np.random.SeedSequence


def test_spawned_streams_are_numpys_and_differ_from_call_to_call() -> None:
    rng, numpys = expanded_generator(), np.random.default_rng(10_001)
    for _ in range(2):
        ours, theirs = rng.spawn(2), numpys.spawn(2)
        assert [each.random() for each in ours] == [each.random() for each in theirs]
    assert rng.bit_generator.seed_seq.entropy == 10_001


@pytest.mark.parametrize("seed", [-1, 0.5, "1", np.int64(3)])
def test_a_wrong_seed_is_refused_as_by_gymnasium(seed: object) -> None:
    with pytest.raises(gym.error.Error, match="Seed must be"):
        checked_seed(seed)


def test_an_env_makes_the_generator_of_its_seed_at_first_use() -> None:
    env = gym.make("ludic/GSM8K-v0").unwrapped
    env.reset(seed=10_001, options={"row": 3})
    assert env._generator is None
    assert env.np_random_seed == 10_001
    assert state(env.np_random) == state(np.random.default_rng(10_001))
    used = env.np_random
    env.reset()
    assert env.np_random is used


def test_a_copy_of_an_env_with_an_unused_seed_plays_the_same_episode() -> None:
    env = gym.make("ludic/TicTacToe-v0").unwrapped
    env.reset(seed=1)
    env.reset(seed=2)
    twin = copy.deepcopy(env)
    assert [env.step("B2")[0], env.step("A1")[0]] == [twin.step("B2")[0], twin.step("A1")[0]]


def test_a_generator_that_is_set_replaces_an_unused_seed() -> None:
    env = gym.make("ludic/GSM8K-v0").unwrapped
    env.reset(seed=1, options={"row": 0})
    env.np_random = np.random.default_rng(7)
    assert state(env.np_random) == state(np.random.default_rng(7))
    assert env.np_random_seed == -1
