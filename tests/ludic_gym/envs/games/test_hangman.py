import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.data.row import words
from ludic_gym.envs.games.words import HANGMAN_WORDS, mask_word

ID = "ludic/Hangman-v0"


def hidden(word, **kwargs):
    env = gym.make(ID, **kwargs)
    env.reset(seed=0)
    env.unwrapped._word = word
    return env


def test_the_list_has_300_different_lower_case_words():
    listed = words(HANGMAN_WORDS)
    assert len(listed) == len(set(listed)) == 300
    assert all(word.isascii() and word.isalpha() and word.islower() for word in listed)


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


def test_a_masked_word_shows_guessed_letters_only():
    assert mask_word("banana", "nb") == "b_n_n_"
