import json

import pytest

from ludic_gym.commands.main import main


@pytest.fixture
def runs(tmp_path, capsys):
    """Two runs on the same ten tasks: nothing solved, everything solved."""
    for policy in ("random", "oracle"):
        words = ["ludic/Arithmetic-v0", "--policy", policy, "--episodes", "10"]
        assert main(["bench", *words, "--out", str(tmp_path / policy)]) == 0
    capsys.readouterr()
    return tmp_path


@pytest.mark.parametrize("measure", ["success", "reward"])
def test_two_runs_are_compared_task_by_task(runs, measure, capsys):
    words = [str(runs / "random"), str(runs / "oracle"), "--measure", measure]
    assert main(["compare", *words]) == 0
    *_, line = capsys.readouterr().out.strip().splitlines()
    # Ten tasks, all better: p = 2 / 2^10.
    expected = ["ludic/Arithmetic-v0", "10", "0.000", "1.000", "+1.000", "[+1.000,", "+1.000]"]
    assert line.split() == [*expected, "0.002"]


def test_runs_of_other_tasks_are_refused(runs, capsys):
    words = ["ludic/Arithmetic-v0", "--episodes", "10", "--seed", "100"]
    main(["bench", *words, "--out", str(runs / "later")])
    assert main(["compare", str(runs / "random"), str(runs / "later")]) == 2
    assert "share no task" in capsys.readouterr().err


def test_runs_of_other_environments_are_refused(runs, capsys):
    main(["bench", "ludic/Nim-v0", "--episodes", "2", "--out", str(runs / "nim")])
    assert main(["compare", str(runs / "random"), str(runs / "nim")]) == 2
    assert "no environment in common" in capsys.readouterr().err


def test_questions_are_paired_by_their_rows_whatever_the_seeds(tmp_path, capsys):
    for seed, policy in ((0, "oracle"), (5, "random")):
        words = ["--policy", policy, "--seed", str(seed), "--out", str(tmp_path / policy)]
        main(["bench", "ludic/GSM8K-v0", "--episodes", "8", *words])
    main(["compare", str(tmp_path / "oracle"), str(tmp_path / "random")])
    *_, line = capsys.readouterr().out.strip().splitlines()
    # All eight rows: by seeds, rows 5 to 7 would be compared with rows 0 to 2.
    assert line.split()[:4] == ["ludic/GSM8K-v0", "8", "1.000", "0.000"]


def test_runs_on_other_rows_are_refused(tmp_path, capsys):
    for name in ("a", "b"):
        data = tmp_path / f"{name}.jsonl"
        data.write_text(json.dumps({"question": f"1 + 1 in {name}?", "answer": "#### 2"}))
        words = ["ludic/GSM8K-v0", "--data", str(data), "--out", str(tmp_path / name)]
        main(["bench", *words])
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    error = capsys.readouterr().err
    assert "the runs played different data: a.jsonl@" in error
    assert "b.jsonl@" in error


def test_other_arguments_of_an_environment_are_named(tmp_path, capsys):
    for digits in ("1", "2"):
        words = ["--env-kwargs", f"digits={digits}", "--out", str(tmp_path / digits)]
        main(["bench", "ludic/Arithmetic-v0", "--episodes", "2", *words])
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "1"), str(tmp_path / "2")]) == 0
    assert "played with {'digits': 1} and {'digits': 2}" in capsys.readouterr().err
