import json
import re

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
    words = ["--policy", "oracle", "--episodes", "3", "--out", str(folder / "nim")]
    assert main(["bench", "ludic/Nim-v0", *words]) == 0
    return folder


def leaderboard(capsys, *words):
    capsys.readouterr()
    code = main(["leaderboard", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_folder_of_runs_is_ranked_by_environment(runs, capsys):
    code, out, _ = leaderboard(capsys, runs)
    lines = [line.split() for line in out.splitlines()]
    # In order of the folders' names: nim, oracle, random.
    assert code == 0
    assert lines[2][:4] == ["nim", "1", "3", "100.0%"]
    assert lines[5][:4] == ["oracle", "1", "10", "100.0%"]
    assert lines[6][:4] + lines[6][-3:] == [
        *("random", "2", "10", "0.0%"), *("[-1.000,", "-1.000]", "0.002"),
    ]  # fmt: skip


def test_a_run_that_was_killed_in_a_line_counts_up_to_there(runs, capsys, tmp_path):
    for name in ("bench.json", "ludic-Arithmetic-v0.jsonl"):
        (tmp_path / name).write_bytes((runs / "oracle" / name).read_bytes())
    path = tmp_path / "ludic-Arithmetic-v0.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    code, out, _ = leaderboard(capsys, tmp_path, "--json")
    (board,) = json.loads(out)
    assert (code, board["runs"][0]["result"]["episodes"]) == (0, 9)


@pytest.mark.parametrize("suffix", [".html", ".md", ".json"])
def test_a_file_has_all_runs(runs, capsys, tmp_path, suffix):
    path = tmp_path / "new" / f"leaderboard{suffix}"
    assert leaderboard(capsys, runs, "--out", path)[:2] == (0, f"{path}\n")
    text = path.read_text()
    assert all(name in text for name in ("nim", "oracle", "random", SUMS, "ludic/Nim-v0"))


def test_a_cell_of_the_page_names_its_column_for_narrow_screens(runs, capsys, tmp_path):
    leaderboard(capsys, runs, "--out", tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text()
    assert '<th class="text">run</th>' in text
    assert re.search(
        r'<td class="text" data-label="run">\w+</td><td data-label="rank">1</td>', text
    )


def test_the_json_that_is_written_is_the_one_that_is_printed(runs, capsys, tmp_path):
    _, out, _ = leaderboard(capsys, runs, "--out", tmp_path / "x.json", "--json")
    assert json.loads(out) == json.loads((tmp_path / "x.json").read_text())


def test_what_is_no_benchmark_is_refused(runs, capsys, tmp_path):
    assert "no run" in leaderboard(capsys, tmp_path)[2]
    (tmp_path / "metrics.jsonl").touch()
    assert "training runs only" in leaderboard(capsys, tmp_path)[2]
    assert "ends in none of .html" in leaderboard(capsys, runs, "--out", "x.pdf")[2]
    assert leaderboard(capsys)[0] == 2
