"""QAEnv: questions from any rows, graders, and episodes without a verdict."""

from __future__ import annotations

import asyncio
import json
import threading
from functools import partial

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludic_gym as lg

ROWS = [
    {"question": "1 + 1?", "answer": "2"},
    {"question": "2 + 2?", "answer": "4"},
    {"question": "2.5 + 1?", "answer": 3.5},
]
PROMPT = "Give the number in <answer></answer> tags."


def same(reply, truth):
    return reply.strip() == truth


async def is_short(exchange):
    return lg.Grade(len(exchange.answer) < 20, exchange.answer, "length")


RUBRIC = lg.Rubric(
    (
        lg.Component("right", lg.by_program(lg.grade_number)),
        lg.Component("short", is_short, 0.5),
    )
)


def qa(rows=ROWS, *, grader=same, prompt=PROMPT, **options):
    return lg.QAEnv(rows, prompt=prompt, grader=grader, **options)


@pytest.fixture
def registered():
    """Registers environments under an id that is forgotten afterwards."""
    ids = []

    def register(env, env_id="mine/Sums-v0"):
        env.register(env_id)
        ids.append(env_id)
        return env_id

    yield register
    for env_id in ids:
        del gym.registry[env_id]


def test_a_question_is_asked_and_its_answer_graded_by_a_function():
    env = qa()
    observation, info = env.reset(options={"row": 1})
    assert (observation, info["system_prompt"]) == ("2 + 2?", PROMPT)
    assert (info["row"], info["split"]) == (1, "rows")
    observation, reward, terminated, truncated, info = env.step(" 4")
    assert (observation, reward, terminated, truncated) == ("", 1.0, True, False)
    assert info["success"] is True
    assert info["reward/correct"] == 1.0
    assert (info["answer"], info["truth"], info["rule"]) == (" 4", "4", "grader")
    env.reset(options={"row": 1})
    assert env.step("5")[1:3] == (0.0, True)


def test_every_row_is_drawn_by_the_seed_and_named_in_the_info():
    env = qa()
    rows = [env.reset(seed=seed)[1]["row"] for seed in range(30)]
    assert set(rows) == {0, 1, 2}
    assert rows == [env.reset(seed=seed)[1]["row"] for seed in range(30)]
    assert env.num_rows == 3
    assert env.single_turn


def test_a_template_takes_any_fields_and_answers_may_have_another_name():
    rows = [{"text": "Ann has {2} pens.", "ask": "How many?", "n": 2}]
    env = qa(rows, question="{text}\n{{Q}} {ask}", answer="n")
    assert env.reset()[0] == "Ann has {2} pens.\n{Q} How many?"
    assert env.step("2")[1] == 1.0


@pytest.mark.long
@given(st.dictionaries(st.sampled_from(["q", "a b"]), st.text(min_size=1), min_size=2))
def test_values_are_never_read_as_templates(fields):
    row = {name: text + "x{q}{0}{a.b}" for name, text in fields.items()}
    env = qa([{**row, "answer": 1}], question="{q}|{a b}")
    assert env.reset()[0] == f"{row['q']}|{row['a b']}"


@pytest.mark.parametrize("template", ["{question", "}", "{}", "{a{b}}"])
def test_a_template_with_half_a_pair_of_braces_is_refused(template):
    with pytest.raises(lg.ConfigError, match=r"fields\['question'\]=.* brace"):
        qa(question=template)


@pytest.mark.parametrize("place", ["question.__class__", "{question.__class__}", "question.0",
                                   "{question!r}", "{question:>9}"])  # fmt: skip
def test_no_attribute_and_no_format_of_a_value_is_read(place):
    with pytest.raises(lg.DataError, match=r"3 of 3 rows .*no field .*; the columns are question"):
        qa(question=place)


def test_rows_by_split():
    sets = {"train": ROWS, "test": ROWS[:1]}
    assert (qa(sets).num_rows, qa(sets, split="train").num_rows) == (1, 3)
    assert qa(sets, split="train").origin.split == "train"
    assert qa({"dev": ROWS}).origin.split == "dev"
    with pytest.raises(lg.ConfigError, match=r"split is one of \['test', 'train'\], got 'dev'"):
        qa(sets, split="dev")
    with pytest.raises(lg.ConfigError, match="no splits, got split='test'"):
        qa(split="test")


def test_equal_rows_have_equal_hashes_in_memory_and_in_a_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    (tmp_path / "train.jsonl").write_text(json.dumps(ROWS[0]))
    from_file = qa(path)
    assert from_file.origin.hash == qa().origin.hash == qa(iter(ROWS)).origin.hash
    assert (from_file.num_rows, qa(tmp_path, split="train").num_rows) == (3, 1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "rows: there are no rows"),
        ([*ROWS, {"question": "3?"}], r"rows\[3\]: no field 'answer'; the columns are question "),
        ([{"question": " ", "answer": 1}], r"rows\[0\]: no text in field 'question' \(it is ' '\)"),
        ([{"question": "?", "answer": float("nan")}], r"rows\[0\]: no text .* \(it is nan\)"),
        ([{"question": "?", "answer": ["2"]}], r"it is \['2'\]"),
        (["1 + 1?"], r"rows\[0\]: a row is a dict .* got '1 \+ 1\?'"),
        ({"test": [None]}, r"rows\['test'\]\[0\]: a row is a dict"),
    ],
)
def test_rows_that_cannot_be_asked_or_graded_are_refused_by_their_place(rows, message):
    with pytest.raises(lg.DataError, match=message):
        qa(rows)


@pytest.mark.parametrize("returned", [None, 1.0, "yes"])
def test_a_grader_that_returns_no_grade_is_named(returned):
    env = qa(grader=lambda reply, truth: returned)
    env.reset()
    with pytest.raises(lg.EnvError, match=f"returned {returned!r}; return a Grade or a bool"):
        env.step("2")


def test_a_rubric_pays_by_its_components():
    env = qa(grader=RUBRIC)
    env.reset(options={"row": 1})
    _, reward, terminated, _, info = env.step("So <answer>4</answer> it is.")
    assert (reward, terminated, info["success"]) == (1.0, True, False)
    assert {key: info[key] for key in info if key.startswith("re")} == {
        "reward/right": 1.0,
        "reward/short": 0.0,
    }
    assert (info["rule/short"], info["truth"], info["row"]) == ("length", "4", 1)


def test_an_episode_without_a_verdict_of_its_judge_is_a_failed_one(registered):
    def down(messages, sampling):
        raise lg.ClientError("the server is down")

    judge = partial(lg.grade_by_judge, lg.ScriptedClient(down))
    rubric = lg.Rubric((lg.Component("kind", judge), RUBRIC.components[0]))
    env_id = registered(qa(grader=rubric))
    result = lg.evaluate(env_id, lg.OraclePolicy, episodes=1, progress=False)
    assert (result.episodes, result.successes) == (0, 0)
    assert "ClientError: the judge gave no reply" in result.errors[0][1]
    assert result.blames == {"infrastructure": 1}


def test_a_slow_judge_does_not_hold_up_other_episodes(registered):
    here = threading.Barrier(4, timeout=20)

    async def waits(exchange):
        # Passes when all four are graded at the same time.
        await asyncio.to_thread(here.wait)
        return lg.Grade(True, exchange.answer, "judge")

    env_id = registered(qa(grader=lg.Rubric((lg.Component("judge", waits),))))
    result = lg.evaluate(env_id, lg.OraclePolicy, episodes=4, concurrency=4, progress=False)
    assert (result.successes, result.errors) == (4, ())


@pytest.mark.long
@pytest.mark.parametrize(
    "grader",
    [*(pytest.param(g, marks=pytest.mark.slow) for g in (same, lg.grade_number)), RUBRIC],
)
def test_it_keeps_the_contract_of_text_environments(registered, grader):
    lg.check_text_env(registered(qa({"train": ROWS, "test": ROWS}, grader=grader)))


def test_registered_environments_take_a_split_and_are_evaluated(registered):
    parsed = []

    def table():
        for row in ROWS:
            parsed.append(row)
            yield row

    env_id = registered(qa({"train": table(), "test": ROWS[:1]}, split="train"))
    assert gym.make(env_id, split="train").unwrapped.num_rows == 3
    gym.make(env_id, split="train")
    assert len(parsed) == 3
    result = lg.evaluate(env_id, lg.OraclePolicy, split="train", progress=False)
    assert (result.episodes, result.success_rate) == (3, 1.0)
    assert result.data.startswith("rows@")


UNGRADED_ROWS = [{"question": "1 + 1?", "answer": "2"}]


def never(reply, truth):
    raise lg.GraderError(f"no verdict on {reply!r}")


def rubric():
    return lg.Rubric((lg.Component("right", lg.by_program(never)),))


@pytest.mark.parametrize("grader", [never, rubric()], ids=["function", "rubric"])
def test_an_episode_without_a_verdict_is_truncated_and_names_the_reason(grader):
    env = lg.QAEnv(UNGRADED_ROWS, prompt="Add.", grader=grader)
    env.reset(seed=0)
    _, _, terminated, truncated, info = env.step("2")
    assert (terminated, truncated) == (False, True)
    assert info["grader_error"] == "no verdict on '2'"
    assert "reward/correct" not in info


def test_a_rubric_fails_its_own_episode_alone():
    async def graded():
        tasks = [lg.Task(env_id="ludic/Arithmetic-v0", seed=seed) for seed in range(2)]
        episodes = lg.run_episodes(tasks, lg.OraclePolicy)
        return [each async for each in lg.graded_episodes(episodes, rubric())]

    for episode in asyncio.run(graded()):
        assert episode.rollouts == ()
        assert episode.error.startswith("GraderError: no verdict on")
