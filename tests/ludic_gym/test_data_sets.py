"""Each published data set is read in its own columns, and graded."""

import json
import re
import sqlite3

import gymnasium as gym
import pytest
from data_set_rows import FORMS, ROWS

import ludic_gym  # noqa: F401 (registers the ids)
from envs_registry.data_sets import DATA_SETS
from envs_registry.published import PUBLISHED
from ludic_gym.data.files import file_rows
from ludic_gym.data.layouts import in_layout
from ludic_gym.data.row import Row
from ludic_gym.errors import NoSandbox
from ludic_gym.sandbox.choice import shared_sandbox

CASES = {**{name: (name, *case) for name, case in ROWS.items()}, **FORMS}


@pytest.fixture
def made(tmp_path):
    """A function that makes the environment of a data set from rows in its columns."""

    def make(name, *rows, env=""):
        entry = DATA_SETS[name]
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        published = PUBLISHED.get(entry.benchmark)
        kwargs = dict(published.kwargs) if published else {}
        metrics = published.metrics if published else ()
        kwargs.pop("split", None)
        if "db_id" in entry.fields:
            folder = tmp_path / "harbour"
            folder.mkdir()
            with sqlite3.connect(folder / "harbour.sqlite") as database:
                database.execute("CREATE TABLE ships (name TEXT, length REAL)")
                database.execute("INSERT INTO ships VALUES ('Anna', 31), ('Bo', 12)")
            database.close()
            kwargs["databases"] = str(tmp_path)
        if entry.env == "ludic/MATH-v0":
            pytest.importorskip("math_verify", reason="needs the extra `math`")
        if entry.kind in ("program", "sql") or "pass@1" in metrics:
            try:
                shared_sandbox("auto")
            except NoSandbox as error:
                pytest.skip(str(error))
        return gym.make(env or entry.env, **{**kwargs, "data": str(path)})

    return make


def reply_to(env, text):
    """The reward of a reply; of choices, the reply has the letter of the text."""
    observation, _ = env.reset(options={"row": 0})
    letter = re.search(rf"^\(?([A-Z])[.)] {re.escape(text)}$", observation, re.MULTILINE)
    return env.step(f"The answer is ({letter[1]})" if letter else text)[1]


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_row_of_each_set_loads_and_is_graded(name, made):
    data_set, row, right, wrong = CASES[name]
    env = made(data_set, row)
    assert reply_to(env, right) == 1.0
    assert reply_to(env, wrong) == 0.0


@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        ("svamp", "Jim had 9 pens and lost 4 pens. How many"),
        ("squad", "Bees live in hives and make honey.\n\nWhere"),
        ("olympiadbench", "Let $a = 3$ and $b = 7$.\n\nFind"),
        ("race", "Tom has a red bicycle.\n\nWhat"),
        ("eurus-2-maths", "When tackling complex problems, think.\n\nReduce"),
    ],
)
def test_the_layout_with_most_columns_is_taken(name, beginning, made):
    assert made(name, ROWS[name][0]).reset()[0].startswith(beginning)


@pytest.mark.parametrize(
    ("name", "env"),
    [
        *((name, "ludic/MultipleChoice-v0") for name in ("gpqa", "mmlu-pro")),
        *((name, "ludic/GSM8K-v0") for name in ("math-500", "dapo-math", "aime-2025-matharena")),
        *((name, "ludic/MATH-v0") for name in ("gsm8k", "verl", "conversations")),
    ],
)
def test_environments_of_one_kind_read_the_same_sets(name, env, made):
    row, right, wrong = ROWS[name]
    asked = made(name, row, env=env)
    assert (reply_to(asked, right), reply_to(asked, wrong)) == (1.0, 0.0)


def test_every_set_of_the_table_has_a_row_here_and_a_licence():
    # Benchmarks with an environment of their own may have their tests beside it.
    shared = {name for name, entry in DATA_SETS.items() if entry.kind}
    assert shared <= ROWS.keys() <= DATA_SETS.keys()
    assert len(ROWS) + len(FORMS) > 59
    assert all(entry.licence and entry.columns and entry.title for entry in DATA_SETS.values())


def test_rows_of_parquet_are_in_the_same_layouts_as_those_of_json(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `data`")
    from pyarrow import parquet

    shared = [name for name in ROWS if DATA_SETS[name].kind]
    assert len(shared) > 59
    for name in shared:
        row, kind = ROWS[name][0], DATA_SETS[name].kind
        path = tmp_path / f"{name}.parquet"
        parquet.write_table(pyarrow.Table.from_pylist([row]), path)
        ((_, read),) = file_rows(path)
        assert in_layout(read, kind).fields == in_layout(Row("here", row), kind).fields, name
        assert in_layout(read, kind) is not read, name
