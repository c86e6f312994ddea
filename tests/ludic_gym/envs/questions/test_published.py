"""Published benchmarks from files with the columns of their publishers."""

import json

import gymnasium as gym
import pytest

import ludic_gym as lg
from envs_registry.published import PUBLISHED
from ludic_gym.commands.main import main
from ludic_gym.testing.check import check_text_env

AIME = {"id": 60, "problem": "Find 5 times 5.", "solution": "...", "answer": "025", "year": "2024"}
MMLU_PRO = {
    "question_id": 70,
    "question": "Which planet is closest to the Sun?",
    "options": ["Venus", "N/A", "Mercury", "Mars"],
    "answer": "B",
    "answer_index": 1,
    "cot_content": "",
    "category": "physics",
    "src": "ori_mmlu",
}
GPQA = {
    "Question": "Which planet is closest to the Sun?",
    "Correct Answer": "Mercury\n",
    "Incorrect Answer 1": "Venus",
    "Incorrect Answer 2": "Mars",
    "Incorrect Answer 3": "Earth",
    "Subdomain": "Astronomy",
}
IFEVAL = {
    "key": 1000,
    "prompt": "Write two lines. Use no commas.",
    "instruction_id_list": ["punctuation:no_comma", "startend:quotation"],
    "kwargs": [{"num_words": None}, {}],
}
BBH = {"input": "not ( True ) is", "target": "False"}
DROP = {
    "section_id": "nfl_1",
    "query_id": "q1",
    "passage": "The Bears and the Packers scored 7 and 3 points.",
    "question": "Which teams scored?",
    "answer": {
        "number": "",
        "date": {"day": "", "month": "", "year": ""},
        "spans": ["Bears", "Packers"],
    },
    "validated_answers": [
        {"number": "", "date": {}, "spans": ["Packers", "Bears"]},
        {"number": "2", "date": {}, "spans": []},
    ],
}
HOTPOTQA = {
    "_id": "5a8b",
    "question": "Are both towers in Paris?",
    "answer": "yes",
    "type": "comparison",
    "level": "hard",
    "supporting_facts": [["Eiffel Tower", 0]],
    "context": [
        ["Eiffel Tower", ["It is in Paris.", " It is tall."]],
        ["Tour First", ["In Paris."]],
    ],
}
ROWS = {
    "aime": AIME,
    "mmlu-pro": MMLU_PRO,
    "gpqa": GPQA,
    "ifeval": IFEVAL,
    "bbh": BBH,
    "drop": DROP,
    "hotpotqa": HOTPOTQA,
}


@pytest.fixture
def made(tmp_path):
    """A function that makes an environment from rows."""

    def make(name, *rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        return gym.make(PUBLISHED[name].id, data=str(path))

    return make


def replied(env, text, row=0):
    """Reward and last info of a reply."""
    env.reset(options={"row": row})
    _, reward, terminated, _, info = env.step(text)
    assert terminated
    assert info["success"] == (reward == 1)
    return reward, info


@pytest.mark.long
@pytest.mark.parametrize("name", ["gpqa", "ifeval", "drop"])
def test_a_benchmark_keeps_the_contract(name, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(ROWS[name])}\n" * 2)
    check_text_env(PUBLISHED[name].id, data=str(path))


@pytest.mark.parametrize("name", sorted(ROWS.keys() - {"ifeval"}))
def test_the_oracle_succeeds_and_others_fail(name, made):
    env = made(name, ROWS[name])
    env.reset(options={"row": 0})
    assert replied(env, env.unwrapped.oracle_action())[0] == 1
    for text in ("", "I do not know", "x" * 10_000, f"<think>{env.unwrapped.question.best}"):
        assert replied(env, text)[0] == 0


def test_mmlu_pro_prints_the_published_form(made):
    env = made("mmlu-pro", MMLU_PRO)
    text, info = env.reset(options={"row": 0})
    assert text == (
        "Question:\nWhich planet is closest to the Sun?\nOptions:\nA. Venus\nB. Mercury\nC. Mars\n"
        "Answer: Let's think step by step."
    )
    assert "questions (with answers) about physics. Think" in info["system_prompt"]
    assert replied(env, "<think>the answer is (A)</think> So the answer is (B).")[0] == 1


def test_gpqa_shuffles_by_the_seed_and_prints_the_published_form(made):
    env = made("gpqa", GPQA)
    letters = set()
    for seed in range(20):
        text, _ = env.reset(seed=seed)
        assert text.startswith(
            "What is the correct answer to this question: Which planet is closest"
        )
        letters.add(env.unwrapped.question.truth)
        assert f"({env.unwrapped.question.truth}) Mercury" in text.splitlines()
    assert letters == {*"ABCD"}
    assert env.reset(seed=1, options={"row": 0})[0] == env.reset(seed=2, options={"row": 0})[0]


def test_aime_compares_integers(made):
    env = made("aime", AIME, {"ID": "2024-II-4", "Problem": "Add 16 and 17.", "Answer": 33})
    assert replied(env, "\\boxed{25}")[0] == 1
    assert replied(env, "\\boxed{25.5}")[0] == 0
    assert replied(env, "so \\boxed{33}", row=1)[0] == 1


def test_ifeval_has_four_accuracies(made):
    env = made("ifeval", IFEVAL)
    reward, info = replied(env, 'Sure:\n"a b"')
    assert reward == 0
    assert info["rule"] == "not followed: startend:quotation"
    # One of two, strictly; without the first line both.
    assert (info["metric/prompt_strict"], info["metric/prompt_loose"]) == (0, 1)
    assert (info["metric/instruction_strict"], info["metric/instruction_loose"]) == (0.5, 1)
    assert info["weight/instruction_strict"] == 2
    assert replied(env, '"a b"')[0] == 1


def test_instruction_accuracy_is_over_instructions_and_not_over_prompts(made, tmp_path):
    one = {**IFEVAL, "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    made("ifeval", one, IFEVAL)
    data = str(tmp_path / "rows.jsonl")

    def policy(env):
        return lg.ChatPolicy(lg.ScriptedClient(["no mark"]))

    result = lg.evaluate("ludic/IFEval-v0", policy, env_kwargs={"data": data}, progress=False)
    # Two of three instructions, and one of two prompts.
    assert result.metrics["instruction_strict"] == pytest.approx(2 / 3)
    assert result.metrics["prompt_strict"] == result.success_rate == 0.5


def test_drop_takes_the_best_annotator_and_aligns_parts(made):
    env = made("drop", DROP)
    _, info = replied(env, "<answer>the Packers\nBears</answer>")
    assert (info["metric/em"], info["metric/f1"]) == (1, 1)
    _, info = replied(env, "<answer>Bears</answer>")
    assert (info["metric/em"], info["metric/f1"]) == (0, 0.5)
    assert replied(env, "<answer>2</answer>")[0] == 1
    assert replied(env, "<answer>3</answer>")[1]["metric/f1"] == 0


def test_drop_reads_its_published_file_and_the_columns_of_the_hub(tmp_path):
    pair = {"question": "How many points?", "answer": {"number": "7", "spans": [], "date": {}}}
    day = {"day": "1", "month": "May", "year": "1802"}
    date = {"question": "When?", "answer": {"number": "", "spans": [], "date": day}}
    path = tmp_path / "drop_dataset_dev.json"
    path.write_text(json.dumps({"nfl_1": {"passage": "Seven.", "qa_pairs": [pair, date]}}))
    env = gym.make("ludic/DROP-v0", data=str(path))
    assert env.unwrapped.num_rows == 2
    assert replied(env, "<answer>1 May 1802</answer>", row=1)[0] == 1
    validated = {"number": ["", "2"], "date": [{}, {}], "spans": [["Packers", "Bears"], []]}
    path = tmp_path / "hub.json"
    spans = {"spans": ["4", "4"], "types": ["number", "number"]}
    other = {"passage": "x", "question": "y?", "answers_spans": spans}
    path.write_text(json.dumps([{**DROP, "validated_answers": validated}, other]))
    env = gym.make("ludic/DROP-v0", data=str(path))
    assert replied(env, "<answer>2</answer>")[0] == 1
    assert replied(env, "<answer>4</answer>", row=1)[0] == 1


def test_hotpotqa_reads_both_published_forms_of_its_context(made):
    hub = {"title": ["Eiffel Tower"], "sentences": [["It is in Paris.", " It is tall."]]}
    env = made("hotpotqa", HOTPOTQA, {**HOTPOTQA, "context": hub})
    for row in (0, 1):
        text, _ = env.reset(options={"row": row})
        assert text.startswith("Eiffel Tower\nIt is in Paris. It is tall.\n\n")
    _, info = replied(env, "<answer>Yes.</answer>")
    assert (info["metric/em"], info["metric/f1"]) == (1, 1)
    # Closed answers earn no part of F1.
    assert replied(env, "<answer>yes, they are</answer>")[1]["metric/f1"] == 0


def test_bbh_reads_the_files_of_its_repository(tmp_path):
    path = tmp_path / "boolean_expressions.json"
    path.write_text(json.dumps({"canary": "x", "examples": [BBH, BBH]}))
    env = gym.make("ludic/BBH-v0", data=str(path))
    assert env.unwrapped.num_rows == 2
    assert replied(env, "True is wrong. So the answer is False.")[0] == 1


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("aime", {"answer": "1000"}, "'answer' must be from 0 to 999, got '1000'"),
        ("mmlu-pro", {"answer": "D"}, "'answer' must be a letter up to C, got D"),
        ("mmlu-pro", {"options": "A"}, "'options' must be a list of texts"),
        ("gpqa", {"Correct Answer": " "}, "no text in field 'Correct Answer'"),
        ("ifeval", {"kwargs": [{}]}, "lists of one length"),
        ("ifeval", {"instruction_id_list": ["a:b", "c:d"]}, "no kind of instruction 'a:b'"),
        ("bbh", {"target": ""}, "no text in field 'target'"),
        ("drop", {"answer": {}, "validated_answers": []}, "question 0: no answer in 'answer'"),
        ("hotpotqa", {"context": "x"}, "'context' must be titles with sentences"),
    ],
)
def test_a_row_that_cannot_be_graded_is_named(name, change, message, made):
    with pytest.raises(lg.DataError, match="rows.jsonl line 1.*" + message):
        made(name, {**ROWS[name], **change})


def test_the_command_takes_the_name_of_a_benchmark_and_prints_its_figures(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(DROP))
    arguments = ["drop", "--data", str(path), "--policy", "oracle", "--out", str(tmp_path / "out")]
    assert main(["bench", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "ludic/DROP-v0" in shown
    assert "ludic/DROP-v0: em 100.0%, f1 100.0%" in shown
    # Read back from the folder, the figures are the same.
    assert main(["bench", *arguments]) == 0
    assert "ludic/DROP-v0: em 100.0%, f1 100.0%" in capsys.readouterr().out
