import json
import random

import pytest

import ludic_gym
from envs_registry.catalog import CATALOG
from ludic_gym.audit.splits import split_overlap, texts_of
from ludic_gym.audit.subject import AuditSubject
from ludic_gym.commands.main import main
from ludic_gym.data.contamination import overlap
from ludic_gym.errors import ConfigError


def sentences(count, seed):
    """Texts of 30 random words each, which share no 13 of them."""
    rng = random.Random(seed)
    return [" ".join(f"w{rng.randrange(10**9)}" for _ in range(30)) for _ in range(count)]


def test_random_texts_share_nothing():
    found = overlap(sentences(300, 1), sentences(100, 2))
    assert (found.train, found.test, found.exact, found.shared) == (300, 100, 0, 0)


def test_planted_texts_are_found():
    train, test = sentences(300, 1), sentences(100, 2)
    # An equal text in other case and punctuation, 13 words in a row, and 12 of them.
    test[0] = train[7].upper().replace(" ", ", ")
    test[1] = test[1] + " " + " ".join(train[9].split()[4:17])
    test[2] = test[2] + " " + " ".join(train[11].split()[4:16])
    found = overlap(train, test)
    assert (found.exact, found.shared) == (1, 2)
    assert found.example in (train[7], " ".join(train[9].split()[4:17]))


def test_a_template_does_not_count_but_a_rare_text_does():
    head = " ".join(f"head{i}" for i in range(20))
    train = [f"{head} {text}" for text in sentences(300, 1)]
    test = [f"{head} {text}" for text in sentences(100, 2)]
    assert overlap(train, test).shared == 0
    # Eleven texts have the head in the first case, which is a template; ten in the second.
    for count, shared in ((10, 0), (9, 1)):
        few = [*train[:count], *sentences(100, 3)]
        assert overlap(few, test[:1]).shared == shared


def test_a_short_text_is_compared_as_a_whole():
    assert overlap(["two and two"], ["Two and two?"]).exact == 1
    assert overlap(["two and two make four"], ["two and two"]).shared == 0
    assert overlap(["#.#"], ["###"]).shared == 0


@pytest.fixture
def planted(tmp_path):
    """A folder with splits of questions, of which one is in both."""
    words = sentences(60, 5)
    for split, texts in (("train", words[:40]), ("test", [*words[40:], words[3]])):
        rows = [{"question": text, "answer": "#### 1"} for text in texts]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_the_command_finds_a_planted_row(planted, capsys):
    arguments = ["audit", "ludic/GSM8K-v0", "--splits", "--env-kwargs", f"data={planted}"]
    assert main(arguments) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("FAILED  ludic/GSM8K-v0")
    assert "40 train and 21 test tasks: 1 equal, 1 with 13 words in a row in common" in printed


def test_all_rows_are_compared_however_few_seeds_of_tasks_without_rows(planted):
    subject = AuditSubject(env_id="ludic/GSM8K-v0", kwargs={"data": str(planted)})
    found = split_overlap(subject, tasks=2)
    assert (found.train, found.test, found.exact) == (40, 21, 1)


def test_shared_words_without_an_equal_task_are_shown_but_do_not_fail(planted, capsys):
    rows = [json.loads(line) for line in (planted / "test.jsonl").read_text().splitlines()]
    rows[-1]["question"] += " and how many are left?"
    (planted / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert main(["audit", "ludic/GSM8K-v0", "--splits", "--env-kwargs", f"data={planted}"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("look    ludic/GSM8K-v0")
    assert "0 equal, 1 with 13 words in a row in common" in printed


def test_the_command_says_that_clean_splits_are_clean(capsys):
    assert main(["audit", "ludic/Arithmetic-v0", "--splits"]) == 0
    assert capsys.readouterr().out.startswith("ok      ludic/Arithmetic-v0")


def test_an_environment_without_splits_is_refused():
    with pytest.raises(ConfigError, match="TicTacToe-v0 has no splits"):
        split_overlap(AuditSubject(env_id="ludic/TicTacToe-v0"))
    with pytest.raises(ConfigError, match="leave out split='test'"):
        texts_of(AuditSubject(env_id="ludic/Maze-v0", kwargs={"split": "test"}), "train")


@pytest.mark.parametrize("name", ["LiarsDice", "FunctionCalls", "Werewolf", "CustomerDesk"])
def test_equal_tasks_with_a_state_have_equal_texts(name):
    subject = AuditSubject(env_id=f"ludic/{name}-v0")
    first, again = (texts_of(subject, "train", 4) for _ in range(2))
    assert first == again
    assert len(set(first)) == 4


@pytest.mark.slow
@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.id)
def test_no_generated_task_is_in_both_splits(entry):
    subject = AuditSubject(env_id=entry.id, budget_s=2.0)
    try:
        found = split_overlap(subject)
    except (ConfigError, ludic_gym.DataError):
        return
    assert found.exact == 0
