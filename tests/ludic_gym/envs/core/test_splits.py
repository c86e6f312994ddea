import random

import numpy as np
import pytest

from ludic_gym.envs.core.splits import drawn, in_test
from ludic_gym.envs.worlds.quests.maker import SIZES, quest_of


def test_a_split_is_the_same_in_every_process():
    # CRC-32 of "123456789" is 0xCBF43926 = 3421780262, by the standard's own check value; the rest
    # of its division by 5 is 2.
    assert not in_test("123456789")
    # CRC-32 of "" is 0.
    assert in_test("")


def test_splits_have_no_task_in_common_over_100_000_seeds():
    # The task is one of 5,000, so that each would come 20 times in either split if it could.
    def task(seed, split):
        rng = random.Random(seed)
        return drawn(lambda: rng.randrange(5000), split)

    seen = {s: {task(seed, s) for seed in range(50_000)} for s in ("train", "test")}
    assert seen["train"] | seen["test"] == set(range(5000))
    assert not seen["train"] & seen["test"]
    # A fifth of 5,000, and three standard deviations of sqrt(5000 * 0.16) = 28.
    assert abs(len(seen["test"]) - 1000) < 85


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_drawn_quest_is_in_its_split(split):
    rng = np.random.default_rng(0)
    quests = [drawn(lambda: quest_of(SIZES["easy"], rng), split) for _ in range(20)]
    assert {in_test(repr(quest)) for quest in quests} == {split == "test"}
