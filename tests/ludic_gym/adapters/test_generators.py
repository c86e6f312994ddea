import random
import sys
import threading

import numpy as np
import pytest

from ludic_gym.adapters.generators import lent_generators, seeded_state
from ludic_gym.adapters.reasoning_gym_env import ReasoningGymEnv, puzzles
from ludic_gym.adapters.textarena import TextArenaEnv
from ludic_gym.errors import MissingPackage


@pytest.mark.parametrize(
    ("module", "make"),
    [
        ("reasoning_gym", lambda: ReasoningGymEnv("chain_sum")),
        ("textarena.envs.registration", lambda: TextArenaEnv("Mastermind-v0")),
    ],
)
def test_an_environment_says_when_it_is_made_what_it_needs(module, make, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    puzzles.cache_clear()
    with pytest.raises(MissingPackage, match=r"pip install .*\[adapters\]'"):
        make()


def draws():
    return random.random(), float(np.random.random())


def test_the_generators_of_the_process_are_left_as_they_were():
    random.seed(1)
    np.random.seed(1)
    expected = draws()
    random.seed(1)
    np.random.seed(1)
    with lent_generators(seeded_state(7)):
        random.seed(99)
        np.random.seed(99)
    assert draws() == expected


def test_they_are_given_back_after_an_error_too():
    random.seed(1)
    before = random.getstate()
    try:
        with lent_generators(seeded_state(7)) as left:
            raise ValueError
    except ValueError:
        assert random.getstate() == before
        assert len(left) == 1


def test_threads_take_turns():
    seen: dict[int, list[float]] = {}

    def run(seed):
        with lent_generators(seeded_state(seed)):
            seen[seed] = [random.random() for _ in range(20_000)]

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, numbers in seen.items():
        rng = random.Random(seed)
        assert numbers == [rng.random() for _ in range(20_000)]
