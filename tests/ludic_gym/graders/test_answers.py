"""The phrase that announces an answer: the last one, as an expression finds it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.errors import DataError
from ludic_gym.graders.extract import after_phrase, extract
from ludic_gym.graders.text import grade_choice, grade_exact, grade_f1, word_f1


@pytest.mark.parametrize(
    ("text", "answer", "rule"),
    [
        ("<think>A</think> B", "B", "bare"),
        ("x <answer> B </answer>", "B", "tag"),
        (r"x \boxed{\frac{1}{2}}", r"\frac{1}{2}", "boxed"),
        ("x\n#### 7\nbye", "7", "hashes"),
        ("The answer is B\nbye", "B", "phrase"),
        ("<answer>A</answer><answer>B</answer>", None, "ambiguous"),
        ("<think>B", None, "unfinished"),
        (" ", None, "none"),
        ("x" * 1001, None, "none"),
    ],
)
def test_the_first_rule_that_finds_an_answer_decides(text, answer, rule):
    assert extract(text) == (answer, rule)


@pytest.mark.parametrize(
    "text",
    ["B", "b", "(B)", "B.", "B: Paris", "B) Paris", "**B**", "[B]", '"B"', "B,", "Ｂ", "B - Paris",
     "B – Paris"]
)  # fmt: skip
def test_a_choice_may_be_written_in_many_ways(text):
    assert grade_choice(text, "B").correct


@pytest.mark.parametrize("text", ["A", "AB", "A, B", "Paris", "", "A B C D", "Because", "A or B"])
def test_another_choice_and_no_choice_are_wrong(text):
    assert not grade_choice(text, "B").correct


@pytest.mark.parametrize(
    "text", ["B. C", "B: or C", "(B) (C)", "B) Paris C) Rome", "B. Paris or C", "B. maybe C",
             "B: is wrong", "B.\nC.", "B. A, C", "B - C", "[A] [B]"]
)  # fmt: skip
def test_a_choice_of_several_letters_is_none(text):
    assert not grade_choice(text, "B").correct


@pytest.mark.parametrize(
    "text",
    ["B. Vitamin C", "\\boxed{\\textbf{(B)}}", "Option B", "B: Ann and Bob", "B. Plan A works"],
)
def test_the_text_of_a_choice_may_hold_letters(text):
    assert grade_choice(text, "B").correct


@pytest.mark.parametrize(
    "text",
    ["Therefore, the correct option is B.", "### Final Answer\nB", "B\nExplanation: it is so.",
     r"\textbf{(B)}\ 2x", r"\boxed{\textbf{(B)}\ 2x}", "**B.** Paris", "Option B is correct.",
     "Answer: **B** because it is so.", "B, since A and C are too small.", "I choose B.",
     "Correct choice: (B)", "<answer>B, Paris</answer>", "So the answer must be B.", "- B", "B ✓",
     "A is too small, C too large.\n\nThe right choice is B.", r"The answer is $\boxed B$",
     "Answer: B\n\nExplanation: A is wrong because it is small.", "b) since it is so"]
)  # fmt: skip
def test_a_choice_may_have_its_reason_its_text_a_sentence_or_a_box(text):
    assert grade_choice(text, "B").correct


@pytest.mark.parametrize(
    "text",
    ["B\nC", "B\n\nNo, C.", "B... wait, C", "The answer is B, no wait, C.", "Options B and C",
     "Option B is correct. Option C is correct.", "B because it is so.\nOption C is also correct",
     "B because it is so.\nThe right choice is C.", "B is wrong.", "B? No, C", "Is it B?", "B12",
     "B can't be the answer", "Type B is common, so A.", "b. or c.", "b, c", "b.c", "B\nor C",
     "B since it is so\nThe answer is C", "Neither B nor C", "B, but C is better",
     "B\n\nActually, C", "B because it is so, and so is C."]
)  # fmt: skip
def test_a_choice_with_a_second_final_letter_or_a_denial_is_none(text):
    assert not grade_choice(text, "B").correct


@pytest.mark.parametrize(
    ("text", "truth"),
    [("3.5", "35"), ("-5", "5"), ("1/2", "12"), ("Nile, Amazon", "Nile"), ("Nile Amazon", "Nile")],
)
def test_an_exact_match_keeps_numbers_and_lists_apart(text, truth):
    assert not grade_exact(text, truth).correct
    assert not grade_f1(text, truth).correct


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("New York City Boston", "New York City"),
        ("Boston New York City", "New York City"),
        ("new york city boston", "New York City"),
        ("Battle of Hastings 1066", "Battle of Hastings"),
        ("red house Boston", "red house"),
    ],
)
def test_f1_is_no_place_for_a_second_answer(text, truth):
    assert word_f1(text, truth) >= 0.8
    assert not grade_f1(text, truth).correct


@pytest.mark.parametrize("truth", ["", "b", "AB", "1"])
def test_the_true_choice_is_a_capital_letter(truth):
    with pytest.raises(DataError, match="a letter from A to Z"):
        grade_choice("A", truth)


def test_f1_is_the_harmonic_mean_over_words():
    # Two of three words are right, two of two are found: 2 * 2 / 5.
    assert word_f1("big red house", "red house") == 0.8
    assert word_f1("", "red") == 0
    assert grade_f1("big red house", "red house").correct
    assert not grade_f1("red", "red house").correct


def test_an_answer_that_hedges_is_wrong_unless_the_truth_does_so_too():
    assert word_f1("Amazon, Lake Victoria", "Lake Victoria") == 0.8
    assert not grade_f1("Amazon, Lake Victoria", "Lake Victoria").correct
    assert not grade_f1("not Lake Victoria", "Lake Victoria").correct
    assert grade_f1("salt and black pepper", "salt and pepper").correct


@pytest.mark.parametrize("grade", [grade_exact, grade_f1])
@pytest.mark.parametrize(
    ("answer", "truth"),
    [("1,200", "1200"), ("1,200 people", "1200 people"), ("$1,200", "1200"), ("US$5", "$5"),
     ("5 dollars", "$5"), ("€5 million", "5 million euros"), ("5 €", "€5"), ("10 %", "10 percent"),
     ("THE EIFFEL TOWER", "the Eiffel Tower")]
)  # fmt: skip
def test_an_amount_may_be_written_in_many_ways(grade, answer, truth):
    assert grade(f"<answer>{answer}</answer>", truth).correct
    assert grade(f"<answer>{truth}</answer>", answer).correct


@pytest.mark.parametrize("grade", [grade_exact, grade_f1])
@pytest.mark.parametrize(
    ("answer", "truth"),
    [("€5", "$5"), ("1,2345", "12345"), ("1200, 1300", "1200"), ("$5", "5 million"), ("10%", "$10"),
     ("5 euros", "5 dollars"), ("1,200", "1,300"), ("$5", "5 million dollars"),
     ("12", "1,200")]
)  # fmt: skip
def test_another_amount_is_wrong(grade, answer, truth):
    assert not grade(f"<answer>{answer}</answer>", truth).correct
    assert not grade(f"<answer>{truth}</answer>", answer).correct


def test_a_text_without_words_is_no_amount():
    assert not grade_exact("!!!", "dollars").correct


def test_an_article_alone_is_an_answer():
    assert grade_exact("The answer is A.", "A\nA positive").correct
    assert not grade_exact("B", "A").correct


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        ("1990-1995", "1990–1995", "19901995"),
        ("2017–18", "2017-18", "201718"),
        ("−5", "-5", "5"),
    ],
)
def test_dashes_between_and_before_numbers_are_one(text, right, wrong):
    assert grade_exact(text, right).correct
    assert not grade_exact(text, wrong).correct


PHRASE = re.compile(r"\banswer(?: is\b|\s?:|\s?=)", re.IGNORECASE)
PIECES = (
    "answer",
    "Answer",
    "ANſWER",
    "An",
    "swer",
    " is",
    " IS",
    " ıs",
    "İ",
    " ",
    ":",
    "=",
    "\n",
    "s",
    "×",
)


def split_last(text: str) -> str | None:
    *before, rest = PHRASE.split(text)
    return rest if before else None


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_the_last_phrase_is_that_of_a_split(text: str) -> None:
    assert after_phrase(text) == split_last(text)
