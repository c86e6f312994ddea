import pytest

from ludic_gym.errors import DataError
from ludic_gym.graders.constraints import (
    KINDS,
    Constraint,
    constraints_json,
    constraints_kept,
    grade_constraints,
    paragraphs,
    read_constraints,
    sentences,
    word_count,
    wording,
)

# For each kind, its count and texts, a text that keeps it and one that does not.
CASES = [
    ("words_at_least", 3, (), "one well-known word", "two words"),
    ("words_at_most", 2, (), "it's two", "one two three"),
    ("sentences_at_least", 2, (), "One. Two", "One, two."),
    ("sentences_exactly", 2, (), 'One! "Two?"', "One. Two. Three."),
    ("paragraphs", 2, (), "a\nb\n\n \nc", "a\nb"),
    ("keywords", 0, ("tea", "cup"), "A CUP, of tea.", "A teacup"),
    ("forbidden", 0, ("tea", "cup"), "A teacup", "My tea"),
    ("frequency", 2, ("tea",), "Tea and tea", "tea and tea, teatime, tea"),
    ("letter_at_least", 3, ("e",), "E, e: Eve", "see"),
    ("lower_case", 0, (), "all low", "Not low"),
    ("upper_case", 0, (), "ALL UP 3", "All up"),
    ("no_commas", 0, (), "a; b", "a, b"),
    ("starts_with", 0, ("Well then",), "well then, go", "Oh well then"),
    ("ends_with", 0, ("The end.",), "This is the end.", "The end. Or not"),
    ("json", 0, (), '```json\n{"a": [1]}\n```', '{"a": 1} yes'),
    ("bullets", 2, (), "* a\n- b", "* a\n*b*"),
    ("title", 0, (), "<<a day>>\nx", "<< >> <a>"),
    ("placeholders", 2, (), "[name] at [place]", "[name] at []"),
    ("postscript", 0, (), "a\nP.S. b", "a P.S. b"),
    ("quoted", 0, (), '"a b"', '"a" b'),
    ("sections", 2, (), "Section 1\na\nSection 2\nb", "Section 1 a Section 2"),
]


def test_every_kind_is_tested():
    assert [case[0] for case in CASES] == list(KINDS)


@pytest.mark.parametrize(("kind", "count", "texts", "right", "wrong"), CASES)
def test_a_kind_tells_texts_apart(kind, count, texts, right, wrong):
    constraint = Constraint(kind, count, texts)
    assert constraints_kept(right, [constraint]) == (True,)
    assert constraints_kept(wrong, [constraint]) == (False,)
    assert constraints_kept(" \n", [constraint]) == (False,)


@pytest.mark.parametrize(
    ("kind", "texts", "text", "holds"),
    [
        ("keywords", ("ice cream",), "More Ice cream!", True),
        ("keywords", ("ice cream",), "Ice and cream", False),
        ("keywords", ("well-known",), "It is well-known.", True),
        ("forbidden", ("ice cream",), "More ice cream", False),
        ("frequency", ("it's",), "It's late, and it's dark.", True),
        ("letter_at_least", ("E",), "eE", True),
    ],
)
def test_a_term_may_have_several_parts_and_capitals(kind, texts, text, holds):
    assert constraints_kept(text, [Constraint(kind, 2, texts)]) == (holds,)


def test_counts_by_hand():
    assert word_count("It's well-known: 3 cats, naïve!") == 5
    # "3.5" ends nothing, "..." ends one, and the last piece needs no full stop.
    assert sentences("It costs 3.5 euros... Really? (Yes.) So be it") == 4
    assert paragraphs("\n\na\n\n\nb\n c\n\n") == 2


TRUTH = constraints_json([Constraint("words_at_most", 5), Constraint("no_commas")])


@pytest.mark.parametrize(
    ("text", "correct", "rule"),
    [
        ("Four words are enough.", True, "kept"),
        ("<think>a, b, c, d, e, f</think> Fine.", True, "kept"),
        ("One, two.", False, "not kept: no_commas"),
        ("one, two three four five six", False, "not kept: words_at_most, no_commas"),
        ("do without any commas.", False, "echo"),
        ("<think>Fine.", False, "unfinished"),
        ("", False, "none"),
    ],
)
def test_a_grade_names_what_is_not_kept(text, correct, rule):
    grade = grade_constraints(text, TRUTH)
    assert (grade.correct, grade.rule) == (correct, rule)


def test_constraints_survive_being_written():
    constraints = tuple(Constraint(kind, count, texts) for kind, count, texts, _, _ in CASES)
    assert read_constraints(constraints_json(constraints)) == constraints
    assert wording(constraints[7]) == "Use the word tea exactly 2 times."


@pytest.mark.parametrize(
    "truth", ["", "18", "[]", "{}", '[{"kind": "rhyme"}]', '[{"kind": "keywords"}]', '["json"]',
              '[{"kind": "forbidden", "texts": ["!"]}]']
)  # fmt: skip
def test_a_truth_that_is_no_constraints_is_refused(truth):
    with pytest.raises(DataError, match="the truth must"):
        grade_constraints("x", truth)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "\n" * 100_000,
        "\n " * 50_000 + "x",
        '{"a":' * 20_000,
        "\ud800 \0",
        "<" * 50_000,
    ],
)
def test_hostile_texts_are_graded(kind, text):
    constraint = Constraint(kind, 2, ("a",))
    assert grade_constraints(text, constraints_json([constraint])).correct in (True, False)
