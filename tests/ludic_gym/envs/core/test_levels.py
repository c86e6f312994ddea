"""Levels of difficulty, and train and test splits."""

from __future__ import annotations

import random

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from envs_registry.catalog import CATALOG
from ludic_gym.envs.core.base import TextEnv, end
from ludic_gym.envs.core.levels import LEVELS, draw_in_split, in_test, level_arguments
from ludic_gym.envs.core.one_player import OnePlayerEnv, SolitaireEnv
from ludic_gym.envs.core.question import QuestionEnv
from ludic_gym.errors import ConfigError

ENTRIES = {entry.id: entry for entry in CATALOG}
LEVELLED = [entry.id for entry in CATALOG if entry.levels[1]]
# Their constructors start a sandbox, generate an archive, or need the package math-verify.
HEAVY = {"ludic/MATH-v0", "ludic/SearchQA-v0"}


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.id)
def test_every_environment_has_three_levels_or_a_reason_why_not(entry):
    assert bool(entry.levels[1]) != bool(entry.no_levels)
    if entry.levels[1]:
        assert len({str(level_arguments(entry, name)) for name in LEVELS}) == 3


def settings(env):
    """The state of an env after a reset, without its generator."""
    observation, info = env.reset(seed=1)
    return observation, info["system_prompt"]


@pytest.mark.parametrize("env_id", [i for i in LEVELLED if i not in HEAVY])
def test_a_named_level_is_the_value_of_its_argument(env_id):
    entry = ENTRIES[env_id]
    for name in LEVELS:
        named = gym.make(env_id, level=name).unwrapped
        explicit = gym.make(env_id, **level_arguments(entry, name)).unwrapped
        assert settings(named) == settings(explicit)
        # Arguments that are attributes, such as numbers of turns, are equal too.
        assert {k: v for k, v in vars(named).items() if isinstance(v, (int, str))} == {
            k: v for k, v in vars(explicit).items() if isinstance(v, (int, str))
        }


def test_names_are_the_ends_and_the_middle_of_the_ladder_and_numbers_count_from_one():
    maze, maths = ENTRIES["ludic/Maze-v0"], ENTRIES["ludic/MATH-v0"]
    assert maze.levels == ("size", (3, 4, 6, 8))
    assert [level_arguments(maze, name) for name in LEVELS] == [
        {"size": 3},
        {"size": 6},
        {"size": 8},
    ]
    assert level_arguments(maze, 2) == level_arguments(maze, "2") == {"size": 4}
    # Its own argument has that name; 0 stands for all levels there.
    assert [level_arguments(maths, name) for name in (*LEVELS, 4, 0)] == [
        {"level": n} for n in (1, 3, 5, 4, 0)
    ]


@pytest.mark.parametrize("level", ["extreme", 0, 4, "", -1])
def test_an_unknown_level_shows_those_that_there_are(level):
    with pytest.raises(ConfigError, match=r"easy, medium, hard, or 1 to 3 for digits=1\|2\|4"):
        gym.make("ludic/Arithmetic-v0", level=level)


def test_a_level_and_its_argument_may_not_contradict():
    assert "1000" in settings(gym.make("ludic/GuessTheNumber-v0", level="hard", high=1000))[0]
    with pytest.raises(ConfigError, match=r"level='hard' .* is high=1000, but high=20 is given"):
        gym.make("ludic/GuessTheNumber-v0", level="hard", high=20)


def test_an_environment_without_levels_says_why():
    with pytest.raises(ConfigError, match="ludic/GSM8K-v0 has no levels: rows of a data set"):
        gym.make("ludic/GSM8K-v0", level="easy")


class Own(TextEnv):
    def __init__(self, level: str = "a"):
        super().__init__()
        self.level = level

    def start(self, options):
        return self.level, ""

    def turn(self, action):
        return end(success=True)


def test_an_environment_of_others_has_levels_of_its_own():
    assert Own(level="z").level == "z"


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("Arithmetic", {"digits": 0}),
        ("DataAnalysis", {"level": "x"}),
        ("Game2048", {"target": 100}),
        ("GuessTheNumber", {"high": 1}),
        ("InstructionFollowing", {"constraints": 7}),
        ("KnightsAndKnaves", {"people": 1}),
        ("LiarsDice", {"players": 7}),
        ("Mastermind", {"letters": 10, "length": 5}),
        ("Minesweeper", {"mines": 0}),
        ("Negotiation", {"opponent": "kind"}),
        ("Sokoban", {"boxes": 0}),
        ("Sudoku", {"size": 6}),
        ("TicTacToe", {"seat": "third"}),
        ("Werewolf", {"players": 4}),
    ],
)
def test_arguments_that_allow_no_task_are_refused_with_their_value(name, kwargs):
    *_, value = kwargs.values()
    with pytest.raises(ConfigError, match=str(value)):
        gym.make(f"ludic/{name}-v0", **kwargs)


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


def test_a_split_without_a_task_is_refused():
    # The only task is in the split "train": see above.
    with pytest.raises(ConfigError, match="no task is in split='test'"):
        draw_in_split(lambda: "123456789", "test", str)


NAMES = (
    "GuessTheNumber", "Mastermind", "Hangman", "Wordle", "Game2048", "Negotiation", "Minesweeper",
    "Maze", "Sokoban", "Countdown", "KnightsAndKnaves", "Sudoku", "InstructionFollowing",
    "PythonToolMath", "ToolCalls", "LiarsDice", "Werewolf",
)  # fmt: skip


def task_of(env, seed):
    """A text that equal tasks have in common."""
    first, _ = env.reset(seed=seed)
    if isinstance(env, SolitaireEnv):
        return env.game()
    if isinstance(env, QuestionEnv):
        return env.task(env.question)
    return env.task(env.state) if isinstance(env, OnePlayerEnv) else first


# Tasks so few that both splits see all of them.
FEW = {"Maze": {"size": 3}, "Mastermind": {"letters": 3}, "KnightsAndKnaves": {"people": 2},
       "Countdown": {"numbers": 2}, "ToolCalls": {"errands": 1},
       "GuessTheNumber": {"high": 50}, "Sudoku": {"size": 4}}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_splits_of_an_environment_have_no_task_in_common(name):
    seen = {}
    for split in ("train", "test"):
        env = gym.make(f"ludic/{name}-v0", split=split, **FEW.get(name, {})).unwrapped
        seen[split] = {task_of(env, seed) for seed in range(60 if name in FEW else 25)}
    assert not seen["train"] & seen["test"]
    assert all(seen.values())


@pytest.mark.parametrize("name", NAMES)
def test_without_a_split_the_first_draw_is_taken(name):
    env = gym.make(f"ludic/{name}-v0", **FEW.get(name, {})).unwrapped
    drawn_of = {split: gym.make(env.spec, split=split).unwrapped for split in ("train", "test")}
    for seed in range(5):
        task = task_of(env, seed)
        same = [split for split, one in drawn_of.items() if task_of(one, seed) == task]
        # The draw is in one of the splits, and is the first one there.
        assert len(same) == 1


def test_an_unknown_split_is_refused():
    with pytest.raises(ConfigError, match="split is one of all, train, test, got 'dev'"):
        gym.make("ludic/Maze-v0", split="dev")
