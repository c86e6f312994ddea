import random

import gymnasium as gym
import numpy as np
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.core.levels import draw_in_split, in_test
from ludic_gym.envs.worlds.quests import SIZES, quest_of
from ludic_gym.errors import ConfigError


def test_a_split_is_the_same_in_every_process():
    # CRC-32 of "123456789" is 0xCBF43926 = 3421780262, by the standard's own check value; the rest
    # of its division by 5 is 2.
    assert not in_test("123456789")
    # CRC-32 of "" is 0.
    assert in_test("")


@pytest.mark.long
def test_splits_have_no_task_in_common_over_100_000_seeds():
    # The task is one of 5,000, so that each would come 20 times in either split if it could.
    def task(seed, split):
        rng = random.Random(seed)
        return draw_in_split(lambda: rng.randrange(5000), split)

    seen = {s: {task(seed, s) for seed in range(50_000)} for s in ("train", "test")}
    assert seen["train"] | seen["test"] == set(range(5000))
    assert not seen["train"] & seen["test"]
    # A fifth of 5,000, and three standard deviations of sqrt(5000 * 0.16) = 28.
    assert abs(len(seen["test"]) - 1000) < 85


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_drawn_quest_is_in_its_split(split):
    rng = np.random.default_rng(0)
    quests = [draw_in_split(lambda: quest_of(SIZES["easy"], rng), split) for _ in range(20)]
    assert {in_test(repr(quest)) for quest in quests} == {split == "test"}


def test_a_split_without_a_task_is_refused():
    # The only task is in the split "train": see above.
    with pytest.raises(ConfigError, match="no task is in split='test'"):
        draw_in_split(lambda: "123456789", "test", str)


# What makes two tasks of an environment the same, found from outside.
SAME = {
    "GuessTheNumber": lambda env: env._number,
    "Mastermind": lambda env: env._code,
    "Hangman": lambda env: env._word,
    "Wordle": lambda env: env._word,
    "Game2048": lambda env: env._board,
    "Negotiation": lambda env: (env.state.scenario[0], frozenset(env.state.scenario[1])),
    "Minesweeper": lambda env: env._mines,
    "Maze": lambda env: env._floor,
    "Sokoban": lambda env: (env._floor, env._at, env._boxes, env._goals),
    "Countdown": lambda env: tuple(sorted(env.question.truth.split())),
    "KnightsAndKnaves": lambda env: env.question.text,
    "Sudoku": lambda env: env.question.truth,
    "InstructionFollowing": lambda env: env.question.text,
    "PythonToolMath": lambda env: env.question.text,
    "ToolCalls": lambda env: env._observation,
}
# Tasks so few that both splits see all of them.
FEW = {"Maze": {"size": 3}, "Mastermind": {"letters": 3}, "KnightsAndKnaves": {"people": 2},
       "Countdown": {"numbers": 2, "largest": 5}, "ToolCalls": {"errands": 1},
       "GuessTheNumber": {"high": 50}, "Sudoku": {"size": 4}}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_splits_of_an_environment_have_no_task_in_common(name):
    seen = {}
    for split in ("train", "test"):
        env = gym.make(f"ludic/{name}-v0", split=split, **FEW.get(name, {})).unwrapped
        seen[split] = set()
        for seed in range(60 if name in FEW else 25):
            env.reset(seed=seed)
            seen[split].add(SAME[name](env))
    assert not seen["train"] & seen["test"]
    assert all(seen.values())


@pytest.mark.parametrize("name", SAME)
def test_without_a_split_the_first_draw_is_taken(name):
    env = gym.make(f"ludic/{name}-v0", **FEW.get(name, {})).unwrapped
    drawn_of = {split: gym.make(env.spec, split=split).unwrapped for split in ("train", "test")}
    for seed in range(5):
        env.reset(seed=seed)
        same = [
            split
            for split, one in drawn_of.items()
            if one.reset(seed=seed) and SAME[name](one) == SAME[name](env)
        ]
        # The draw is in one of the splits, and is the first one there.
        assert len(same) == 1


@pytest.mark.parametrize("name", SAME)
def test_an_unknown_split_is_refused(name):
    with pytest.raises(ConfigError, match="split is one of all, train, test, got 'dev'"):
        gym.make(f"ludic/{name}-v0", split="dev")
