import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.data.row import words
from ludic_gym.envs.games.words import WORDLE_WORDS, best_guess, marks

ID = "ludic/Wordle-v0"


def hidden(word, **kwargs):
    env = gym.make(ID, **kwargs)
    env.reset(seed=0)
    env.unwrapped._word = word
    return env


def test_the_list_has_698_different_words_of_five_letters():
    listed = words(WORDLE_WORDS)
    assert len(listed) == len(set(listed)) == 698
    assert all(len(word) == 5 and word.isascii() and word.islower() for word in listed)


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
    env = hidden("roads")
    assert env.step("CRANE")[0] == "crane -YG--\nYou have 5 guesses left."
    text, reward, terminated, _, info = env.step("roads")
    assert text == "roads GGGGG\nYou have 4 guesses left."
    # The picture has all guesses, an observation the last one only.
    assert env.unwrapped.picture() == f"crane -YG--\n{text}"
    assert (reward, terminated, info["outcome"]) == (1.0, True, "win")


def test_any_five_letters_are_a_guess():
    assert not hidden("roads").step("zzzzz")[4]["illegal"]


@pytest.mark.parametrize("action", ["", "road", "roadss", "ro ds", "ros\u00e9s", "12345"])
def test_anything_else_is_illegal(action):
    assert hidden("roads").step(action)[4]["illegal"]


@given(st.data())
def test_the_oracle_splits_the_fitting_words_into_most_groups(data):
    target, *guessed = data.draw(
        st.lists(st.sampled_from(words(WORDLE_WORDS)), min_size=2, max_size=3)
    )
    said = tuple((guess, marks(guess, target)) for guess in guessed)
    fitting = [w for w in words(WORDLE_WORDS) if all(marks(g, w) == m for g, m in said)]
    groups = [len({marks(guess, word) for word in fitting}) for guess in fitting]
    assert best_guess(said) == fitting[groups.index(max(groups))]


def test_the_oracle_fits_what_was_said():
    env = hidden("water")
    said = {}
    for _ in range(3):
        guess = env.unwrapped.oracle_action()
        assert all(marks(old, guess) == given for old, given in said.items())
        said[guess] = marks(guess, "water")
        if env.step(guess)[2]:
            break
