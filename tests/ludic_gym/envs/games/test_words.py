"""Hangman and Wordle."""

from __future__ import annotations

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.data.row import words
from ludic_gym.envs.games.words import HANGMAN_WORDS, WORDLE_WORDS, best_guess, marks

ID = "ludic/Hangman-v0"


def hidden(word, **kwargs):
    env = gym.make(ID, **kwargs)
    env.reset(seed=0)
    env.unwrapped.word = word
    return env


@pytest.mark.parametrize(
    ("path", "count", "lengths"), [(HANGMAN_WORDS, 300, range(99)), (WORDLE_WORDS, 698, [5])]
)
def test_a_list_has_different_lower_case_words(path, count, lengths):
    listed = words(path)
    assert len(listed) == len(set(listed)) == count
    assert all(w.isascii() and w.isalpha() and w.islower() and len(w) in lengths for w in listed)


def test_a_right_letter_is_shown_wherever_it_is_and_costs_nothing():
    assert hidden("banana").step("A")[0] == "Word: _ a _ a _ a\nWrong letters: none\nLives left: 6"


def test_a_wrong_letter_costs_a_life():
    env = hidden("banana")
    env.step("e")
    assert env.step("q")[0] == "Word: _ _ _ _ _ _\nWrong letters: e q\nLives left: 4"


@pytest.mark.parametrize("action", ["", "ab", "1", "é", "a"])
def test_what_is_no_new_letter_costs_a_life_too(action):
    env = hidden("banana")
    env.step("a")
    text, _, _, _, info = env.step(action)
    refusal, position = text.split("\n", 1)
    assert refusal.endswith("Reply with just a letter that you have not guessed yet, such as e.")
    assert position == "Word: _ a _ a _ a\nWrong letters: none\nLives left: 5"
    assert info["illegal"]


def test_the_whole_word_wins_and_no_life_left_loses():
    env = hidden("banana", lives=1)
    env.step("b")
    env.step("n")
    assert env.step("a")[1:3] == (1.0, True)
    assert hidden("banana", lives=1).step("e")[1:3] == (0.0, True)


def test_the_oracle_takes_the_letter_of_most_words_that_fit():
    env = hidden("zipper")
    for letter in "zip":
        env.step(letter)
    # Only "zipper" is left: its letters e and r are in all words that fit.
    assert env.unwrapped.oracle_action() == "e"


WORDLE = "ludic/Wordle-v0"


def wordle_hidden(word, **kwargs):
    env = gym.make(WORDLE, **kwargs)
    env.reset(seed=0)
    env.unwrapped.word = word
    return env


@pytest.mark.parametrize(
    ("guess", "word", "expected"),
    [
        ("crane", "crane", "GGGGG"),
        ("crane", "roads", "-YG--"),
        # The word has one l: the l in place takes it, or else the first of the guess.
        ("llama", "gloss", "-G---"),
        ("allow", "gloss", "-G-Y-"),
        ("eerie", "these", "Y---G"),
        ("speed", "erase", "Y-YY-"),
    ],
)
def test_a_letter_of_the_word_pays_for_one_mark(guess, word, expected):
    assert marks(guess, word) == expected


def test_a_game_step_by_step():
    env = wordle_hidden("roads")
    assert env.step("CRANE")[0] == "crane -YG--\nYou have 5 guesses left."
    text, reward, terminated, _, info = env.step("roads")
    assert text == "roads GGGGG\nYou have 4 guesses left."
    # The picture has all guesses, an observation the last one only.
    assert env.unwrapped.picture() == f"crane -YG--\n{text}"
    assert (reward, terminated, info["outcome"]) == (1.0, True, "win")


@pytest.mark.parametrize("action", ["", "road", "roadss", "ro ds", "ros\u00e9s", "12345"])
def test_anything_else_is_illegal(action):
    assert wordle_hidden("roads").step(action)[4]["illegal"]


@given(st.data())
def test_the_oracle_splits_the_fitting_words_into_most_groups(data):
    target, *guessed = data.draw(
        st.lists(st.sampled_from(words(WORDLE_WORDS)), min_size=2, max_size=3)
    )
    said = tuple((guess, marks(guess, target)) for guess in guessed)
    fitting = [w for w in words(WORDLE_WORDS) if all(marks(g, w) == m for g, m in said)]
    groups = [len({marks(guess, word) for word in fitting}) for guess in fitting]
    assert best_guess(said) == fitting[groups.index(max(groups))]
