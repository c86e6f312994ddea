"""Fields of rows by paths and templates."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.data.fields import checked_fields, has_place, mapped
from ludic_gym.data.layouts import in_layout, names_of
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.questions.maths import GSM8KEnv, MATHEnv
from ludic_gym.envs.questions.multiple_choice import MultipleChoiceEnv
from ludic_gym.errors import ConfigError, DataError

ROW = Row(
    "line 1",
    {
        "a.b": "dotted",
        "a": {"b": "inner", "n": [10, 20.0, {"c": None}]},
        "text": '{"k": [1, {"z": "deep"}]}',
        "list": [{"t": "x"}, {"t": "y"}],
        "plain": "p",
        "braces": "{plain} {0} {{",
        "none": None,
    },
)


def value(place):
    return mapped(ROW, {"it": place}).fields["it"]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("plain", "p"),
        ("a.b", "dotted"),
        ("a.n.0", 10),
        ("a.n.-2", 20.0),
        ("a.n.2.c", None),
        ("text.k.1.z", "deep"),
        ("list.t", ["x", "y"]),
        ("list.-1.t", "y"),
        ("{plain}|{a.n.1}|{{x}}|{list.0.t}", "p|20|{x}|x"),
        ("{braces}", "{plain} {0} {{"),
        (("list.t", "plain"), ["x", "y", "p"]),
        (("a.n.0", "{plain}!"), [10, "p!"]),
    ],
)
def test_a_place_is_a_column_a_path_a_template_or_a_list(place, expected):
    assert value(place) == expected
    places = place if isinstance(place, tuple) else (place,)
    assert has_place(ROW, place) is (expected is not None)
    assert checked_fields({"it": list(places)}) == {"it": places}


@pytest.mark.parametrize(
    "place",
    ["b", "a.c", "a.n.3", "a.n.-4", "a.n.x", "plain.0", "plain.upper", "text.k.9", "list.u",
     "none.x", "a.n.1e0", "{a.c}", "text.__class__", ("plain", "b")],
)  # fmt: skip
def test_a_place_that_is_not_there_is_named_with_the_columns(place):
    assert not has_place(ROW, place)
    with pytest.raises(DataError, match=r"^line 1: no field '.*'; the columns are a.b, a, text, l"):
        value(place)


@given(st.dictionaries(st.sampled_from("abc"), st.text(min_size=1), min_size=3))
def test_values_are_put_in_as_they_are(fields):
    row = Row("here", {name: text + "x{a}{{0}" for name, text in fields.items()})
    assert mapped(row, {"q": "{a}{{{c}"}).fields["q"] == row.fields["a"] + "{" + row.fields["c"]


@pytest.mark.parametrize(
    "fields", [{}, "question", {"question": 3}, {"question": ""}, {"question": ["a", 1]},
               {"question": "{a"}, {"question": ["a}"]}, ["question"]]
)  # fmt: skip
def test_fields_of_another_type_are_refused(fields):
    with pytest.raises(ConfigError, match="fields"):
        checked_fields(fields)


def test_an_unknown_name_is_refused_with_those_that_are_read():
    names = ", ".join(names_of("maths"))
    assert names.startswith("question, answer, solution")
    with pytest.raises(ConfigError, match=f"fields= has 'quesion'; the fields are {names}"):
        MATHEnv("rows.jsonl", fields={"quesion": "q", "answer": "a"})


@pytest.fixture
def file_of(tmp_path):
    def write(*rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        return str(path)

    return write


def test_fields_replace_the_known_layouts(file_of):
    # "question" and "answer" are columns too, of another meaning.
    row = {"question": "no", "answer": "9", "level": "hard", "q": ["no", "1 + 1?"], "n": {"x": 2}}
    env = MATHEnv(file_of(row), fields={"question": "Add.\n{q.1}", "answer": "n.x"})
    assert env.reset()[0] == "Add.\n1 + 1?"
    assert env.step("\\boxed{2}")[1] == 1.0


@pytest.mark.parametrize(
    ("choices", "answer", "right"),
    [
        (["x", "y", "z"], "2", "z"),
        (["4", "2", "7"], "2", "2"),
        (["x", "y", "z"], "y", "y"),
        (["A", "C", "B"], "C", "B"),
        ({"1": "x", "2": "y"}, "1", "x"),
        ({"a": "x", "b": "y"}, "y", "y"),
        (["x", "y"], [0, 1], "y"),
        (["x", "y"], [True, False], "x"),
    ],
)
def test_the_right_choice_is_named_in_many_ways(choices, answer, right, file_of):
    data = file_of({"question": "Which?", "choices": choices, "answer": answer})
    env = MultipleChoiceEnv(data)
    text, _ = env.reset(seed=0)
    assert f"{env.oracle_action()}. {right}" in text.splitlines()


@pytest.mark.parametrize(
    ("answer", "truth"),
    [(27.0, "27"), (3, "3"), (0.5, "0.5"), ("#### 1,200", "1,200"), ("so \\boxed{7}.", "7"),
     (" 12 ", "12"), ("$5", "$5")],
)  # fmt: skip
def test_numbers_and_marked_numbers_are_answers(answer, truth, file_of):
    env = GSM8KEnv(file_of({"question": "How many?", "answer": answer}))
    env.reset()
    assert env.question.truth == truth


@pytest.mark.parametrize(
    "fields",
    [{"answer": "proof"}, {"answer": "notfound"}, {"answer": True}, {"answer": '{"inputs": []}'},
     {"answer": "####"}, {"solution": "It is clear."}, {"answer": []}, {"answer": None}],
)  # fmt: skip
def test_what_is_no_answer_of_a_problem_is_a_bad_row(fields, file_of):
    with pytest.raises(DataError, match=r"1 of 2 rows cannot be used: .*rows\.jsonl line 2: "):
        MATHEnv(file_of({"problem": "1?", "answer": "1"}, {"problem": "2?", **fields}))


def test_dialogs_are_questions():
    def text(*messages):
        return text_field(Row("here", {"prompt": list(messages)}), "prompt")

    system, user = {"role": "system", "content": "S"}, {"role": "user", "content": "U"}
    model = {"role": "assistant", "content": "M"}
    assert text(user) == text(user, model) == "U"
    assert text(system, user) == "S\n\nU"
    assert text(user, model, user, model) == "User: U\n\nAssistant: M\n\nUser: U"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert text({"role": "user", "content": parts}) == "ab"
    for messages in ((system, model), ({"role": "user", "content": None},), ({"content": "U"},)):
        with pytest.raises(DataError, match="here: field 'prompt' has "):
            text(*messages)


def test_a_row_in_no_known_layout_is_read_by_the_own_names():
    row = Row("here", {"Q": "1 + 1?", "A": "2"})
    assert in_layout(row, "maths") is row
    assert in_layout(row, "") is row
