"""`ludic view --text`: benchmarks by environment, and the differences between them."""

import json

import pytest

from ludic_gym.commands.main import main

SUMS = "ludic/Arithmetic-v0"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Random play and the oracle on ten tasks, and one more environment."""
    folder = tmp_path_factory.mktemp("runs")
    for policy in ("random", "oracle"):
        words = ["--policy", policy, "--episodes", "10", "--out", str(folder / policy)]
        assert main(["bench", SUMS, *words]) == 0
    words = ["--policy", "oracle", "--episodes", "3", "--out", str(folder / "countdown")]
    assert main(["bench", "ludic/Countdown-v0", *words]) == 0
    return folder


def view(capsys, *words):
    capsys.readouterr()
    code = main(["view", *map(str, words)])
    captured = capsys.readouterr()
    return code, [line.split() for line in captured.out.splitlines()], captured.err


@pytest.mark.parametrize("measure", ["success", "reward"])
def test_two_runs_are_compared_task_by_task_with_the_first_as_the_baseline(runs, measure, capsys):
    words = [runs / "random", runs / "oracle", "--text", "--measure", measure]
    code, (title, _, best, other, *lines), _ = view(capsys, *words)
    mean = "100.0%" if measure == "success" else "1.00"
    # 2 x 0.05^(1/10) - 1 = 0.482; rewards have no bounds.
    interval = ["[+0.482,", "+1.000]"] if measure == "success" else ["-"]
    assert (code, title) == (0, [f"{SUMS}:", "difference", "from", "random"])
    assert best[:4] == ["oracle", "1", "10", mean]
    # Ten tasks, all better: p = 2 / 2^10.
    assert best[-2 - len(interval) :] == ["+1.000", *interval, "0.002"]
    assert len(lines) == (measure == "reward")
    assert other[:3] == ["random", "2", "10"]


def test_a_folder_of_runs_is_ranked_by_environment_with_the_best_as_the_baseline(runs, capsys):
    code, lines, _ = view(capsys, runs, "--text")
    assert code == 0
    # In order of the folders' names: countdown, oracle, random.
    assert lines[2][:4] == ["countdown", "1", "3", "100.0%"]
    assert lines[5][:4] == ["oracle", "1", "10", "100.0%"]
    assert lines[6][:4] + lines[6][-3:] == [
        *("random", "2", "10", "0.0%"), *("[-1.000,", "-0.482]", "0.002"),
    ]  # fmt: skip


def test_questions_are_paired_by_their_rows_whatever_the_seeds(tmp_path, capsys):
    for seed, policy in ((0, "oracle"), (5, "random")):
        words = ["--policy", policy, "--seed", str(seed), "--out", str(tmp_path / policy)]
        main(["bench", "ludic/GSM8K-v0", "--episodes", "8", *words])
    capsys.readouterr()
    assert main(["view", str(tmp_path), "--json"]) == 0
    ((best, other),) = [board["runs"] for board in json.loads(capsys.readouterr().out)]
    assert best["difference"] is None
    # All eight rows: by seeds, rows 5 to 7 would be compared with rows 0 to 2.
    assert (other["difference"]["tasks"], other["difference"]["difference"]) == (8, -1.0)


def test_other_arguments_of_an_environment_have_a_board_of_their_own(tmp_path, capsys):
    for digits in ("1", "2"):
        words = ["--env-kwargs", f"digits={digits}", "--out", str(tmp_path / digits)]
        main(["bench", SUMS, "--policy", "random", "--episodes", "2", *words])
    _, lines, _ = view(capsys, tmp_path / "1", tmp_path / "2", "--text")
    titles = [line[:2] for line in lines if line[0] == SUMS]
    assert titles == [[SUMS, "digits=1:"], [SUMS, "digits=2:"]]


def test_a_run_that_was_killed_in_a_line_counts_up_to_there(runs, capsys, tmp_path):
    for name in ("bench.json", "ludic-Arithmetic-v0.jsonl"):
        (tmp_path / name).write_bytes((runs / "oracle" / name).read_bytes())
    path = tmp_path / "ludic-Arithmetic-v0.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    code, lines, _ = view(capsys, tmp_path, "--text")
    assert (code, lines[-1][:3]) == (0, [tmp_path.name, "1", "9"])


def test_what_is_no_benchmark_is_refused(capsys, tmp_path):
    assert "no run" in view(capsys, tmp_path, "--text")[2]
    (tmp_path / "metrics.jsonl").touch()
    assert "training runs only" in view(capsys, tmp_path, "--text")[2]
    assert view(capsys, "--text")[0] == 2
