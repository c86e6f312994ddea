import re

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.questions.arithmetic import is_held_out

ID = "ludic/Arithmetic-v0"


def problems(count, **kwargs):
    """Pairs of question and oracle's answer."""
    env = gym.make(ID, **kwargs)
    for seed in range(count):
        text, _ = env.reset(seed=seed)
        yield text, int(env.unwrapped.oracle_action())


def worked_out(text):
    """The answer, by reading the problem word by word."""
    total = 0
    for verb, number in re.findall(r"(then has|has|gets|loses) (\d+)", text):
        n = int(number)
        total = {"has": n, "gets": total + n, "loses": total - n}.get(verb, total * n)
    return total


def test_by_default_it_asks_for_a_two_digit_sum():
    for text, answer in problems(200):
        match = re.fullmatch(
            r"([A-Z][a-z]+) has (\d\d) ([a-z]+) and gets (\d\d) more \3\. "
            r"How many \3 does \1 have now\?",
            text,
        )
        assert int(match[2]) + int(match[4]) == answer


def test_one_thing_is_in_the_singular():
    texts = [text for text, _ in problems(300, digits=1, operations="+-", steps=2)]
    nouns = re.findall(r"\b(\d+) (?:more )?(pens?|figs?|nuts?|cups?)\b", " ".join(texts))
    # Three numbers a problem, of which some are 1.
    assert len(nouns) == 900
    assert {noun[-1] == "s" for number, noun in nouns if number == "1"} == {False}
    assert {noun[-1] == "s" for number, noun in nouns if number != "1"} == {True}


@pytest.mark.parametrize("digits", [1, 3, 15])
def test_the_oracle_is_right_about_any_chain_and_nothing_goes_below_zero(digits):
    for text, answer in problems(100, digits=digits, operations="+-*", steps=4):
        assert answer == worked_out(text) >= 0


def test_one_pair_in_five_is_held_out_in_either_order_for_ever():
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    held_out = [pair for pair in pairs if is_held_out(*pair)]
    assert 0.19 < len(held_out) / len(pairs) < 0.21
    assert all(is_held_out(b, a) for a, b in held_out)
    # Models were trained on this split: it must not move.
    assert [b for b in range(10, 40) if is_held_out(47, b)] == [12, 22, 28]


@pytest.mark.parametrize(
    ("kwargs", "stories"),
    [
        ({}, ["Bob has 66 pens and gets 79 more pens", "Bob has 88 cups and gets 83 more cups"]),
        (
            {"split": "test"},
            ["Dee has 32 nuts and gets 55 more nuts", "Dee has 13 figs and gets 56 more figs"],
        ),
        (
            {"split": "test", "operations": "+-*", "steps": 3},
            [
                "Ann has 13 cups, loses 11 cups, loses 2 cups and loses 0 cups",
                "Cy has 23 nuts, gets 89 more nuts, then has 67 times as many nuts and then has "
                "18 times as many nuts",
            ],
        ),
    ],
)
def test_a_seed_and_the_episodes_after_it_have_their_tasks_for_ever(kwargs, stories):
    env = gym.make(ID, **kwargs)
    # Pairs of the other split are drawn in between: no number more or less may be.
    asked = [env.reset(seed=seed)[0].partition(". ")[0] for seed in (7, None)]
    assert asked == stories


@pytest.mark.parametrize("operations", ["+", "-", "*", "+-*"])
@pytest.mark.parametrize("digits", [1, 2])
def test_train_and_test_ask_about_different_pairs(digits, operations):
    def pairs(split):
        texts = (
            text for text, _ in problems(300, digits=digits, operations=operations, split=split)
        )
        return {tuple(map(int, re.findall(r"\d+", text))) for text in texts}

    assert all(is_held_out(*pair) for pair in pairs("test"))
    assert not any(is_held_out(*pair) for pair in pairs("train"))


@pytest.mark.parametrize(
    ("answer", "reward"),
    [("{}", 1.0), ("<answer>{}</answer>", 1.0), ("I say {}", 0.0), ("{}1", 0.0), ("", 0.0)],
)
def test_one_answer_ends_the_episode(answer, reward):
    env = gym.make(ID)
    env.reset(seed=0)
    truth = env.unwrapped.oracle_action()
    text, earned, terminated, truncated, info = env.step(answer.format(truth))
    assert (text, earned, terminated, truncated) == ("", reward, True, False)
    assert (info["success"], info["reward/correct"], info["truth"]) == (reward == 1, reward, truth)


def test_the_picture_shows_question_answer_and_verdict():
    env = gym.make(ID, render_mode="ansi")
    question, _ = env.reset(seed=0)
    assert env.render() == question
    env.step("none")
    assert env.render() == f"{question}\n\nnone\n\nwrong"
