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
