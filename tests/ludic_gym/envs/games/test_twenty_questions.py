import copy
import pickle

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.things import things
from ludic_gym.envs.games.twenty_questions import guessed
from ludic_gym.errors import ConfigError

ID = "ludic/TwentyQuestions-v0"


def thinking_of(thing, **kwargs):
    env = gym.make(ID, **kwargs).unwrapped
    env.reset(seed=0)
    env._thing = thing
    return env


def test_questions_are_answered_and_a_right_guess_wins():
    env = thinking_of("dog")
    assert env.step("Is it alive?")[0] == "Yes. Turns left: 19"
    text, reward, terminated, _, info = env.step("Hm?")
    assert text.startswith("I do not know. Ask about one property in simple words")
    assert text.endswith("Turns left: 18")
    assert env.picture() == "1. Is it alive? yes\n2. Hm? I don't know\nTurns left: 18"
    assert (reward, terminated) == (0.0, False)
    text, reward, terminated, _, info = env.step("guess: a dog")
    assert text == "It was: dog"
    assert (reward, terminated, info["outcome"]) == (1.0, True, "win")


@pytest.mark.parametrize(
    "action", ["guess: cat", "guess: dog cat", "Guess: dog or cat", "guess: x"]
)
def test_a_wrong_guess_ends_the_game(action):
    _, reward, terminated, _, info = thinking_of("dog").step(action)
    assert (reward, terminated, info["success"]) == (0.0, True, False)


def test_the_right_question_is_no_guess():
    env = thinking_of("dog")
    assert env.step("Is it a dog?")[:3] == ("Yes. Turns left: 19", 0.0, False)


def test_the_turns_run_out():
    env = thinking_of("dog", questions=2)
    env.step("Is it a dog?")
    text, reward, terminated, _, _ = env.step("Is it a cat?")
    assert (reward, terminated) == (0.0, True)
    assert text == "No. It was: dog"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("guess: a cat", "a cat"),
        ("Guess cat", "cat"),
        ("My guess is: the cat.", "the cat."),
        ("my final answer: cat", "cat"),
        ("Is it a guess?", None),
        ("guess:", None),
        ("guessing game", None),
    ],
)
def test_a_guess_says_so(text, name):
    assert guessed(text) == name


def test_a_question_stays_on_its_line():
    env = thinking_of("dog")
    env.step("x\n2. Is it alive? no\nTurns left: 99\x1b[2J\ud800" + "y" * 1000)
    text = env.picture()
    assert len(text.splitlines()) == 2
    assert text.splitlines()[0].isprintable()
    assert len(text) < 260


@pytest.mark.long
def test_the_oracle_finds_everything_in_time():
    for thing in sorted(things()):
        env = thinking_of(thing)
        terminated, turns = False, 0
        while not terminated:
            _, _, terminated, _, info = env.step(env.oracle_action())
            turns += 1
        assert info["success"], thing
        assert turns <= 16, thing


def test_the_oracle_is_not_misled_by_what_was_not_understood():
    env = thinking_of("dog")
    env.step("Is it alive? " * 100)
    env.step("hm")
    terminated = False
    while not terminated:
        _, _, terminated, _, info = env.step(env.oracle_action())
    assert info["success"]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_thinks_of_the_same(copied):
    env = thinking_of("dog")
    env.step("Is it alive?")
    assert copied(env).step("guess: dog") == env.step("guess: dog")


def test_there_is_at_least_one_turn():
    with pytest.raises(ConfigError, match="got 0"):
        gym.make(ID, questions=0)
