"""`ludic bench --like`: the tasks of an earlier run once more."""

import json

from chat_server import answering, chat_server

from ludic_gym.commands.main import main
from ludic_gym.records import read_episodes

GAME = "ludic/TicTacToe-v0"


def bench(capsys, *words):
    named = {"--policy", "--model", "--like"} & {*words}
    code = main(["bench", *map(str, words), *(() if named else ("--policy", "random"))])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def lines(folder, env_id=GAME):
    path = folder / f"{env_id.replace('/', '-')}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_is_repeated_with_all_its_settings(capsys, tmp_path):
    settings = ["--seed", "30", "--samples", "2", "--episodes", "3", "--temperature", "0.5"]
    settings += ["--env-kwargs", "opponent=perfect"]
    first, second = tmp_path / "first", tmp_path / "second"
    assert bench(capsys, GAME, *settings, "--out", first)[0] == 0
    code, _, error = bench(capsys, "--like", first, "--out", second)
    assert (code, "environment was" in error) == (0, False)
    assert lines(first) == lines(second)
    assert (first / "bench.json").read_text() == (second / "bench.json").read_text()


def test_a_suite_is_repeated_with_the_splits_that_it_chose(capsys, tmp_path):
    words = ["core", "--data", "sample", "--policy", "oracle", "--episodes", "2"]
    first, second = tmp_path / "first", tmp_path / "second"
    assert bench(capsys, *words, "--out", first)[0] == 0
    assert bench(capsys, "--like", first, "--out", second)[0] == 0
    assert (first / "bench.json").read_text() == (second / "bench.json").read_text()


def test_another_policy_plays_the_same_tasks_and_options_replace_settings(capsys, tmp_path):
    with chat_server(answering("5", "small-1")) as server:
        words = ["ludic/Arithmetic-v0", "--policy", server.url, "--model", "small"]
        words += ["--param", "top_p=none", "--episodes", "2", "--seed", "7"]
        assert bench(capsys, *words, "--out", tmp_path / "small")[0] == 0
        # Its policy, model and fields of requests.
        assert bench(capsys, "--like", tmp_path / "small", "--out", tmp_path / "again")[0] == 0
        assert "top_p" not in server.requests[-1]
    words = ["--policy", "oracle", "--episodes", "3", "--out", tmp_path / "best"]
    assert bench(capsys, "--like", tmp_path / "small", *words)[0] == 0
    played = list(read_episodes(tmp_path / "best" / "ludic-Arithmetic-v0.jsonl"))
    assert [episode.task.seed for episode in played] == [7, 8, 9]
    assert json.loads((tmp_path / "best" / "bench.json").read_text())["param"] == []


def test_rows_that_have_changed_are_named(capsys, tmp_path):
    first = tmp_path / "first"
    assert bench(capsys, GAME, "--episodes", "1", "--out", first)[0] == 0
    path = first / "bench.json"
    request = json.loads(path.read_text())
    request["envs"][GAME]["data"] = "old@0123"
    # As a version wrote it that had neither.
    del request["chat_arg"], request["samples"]
    path.write_text(json.dumps(request))
    code, _, error = bench(capsys, "--like", first)
    assert (code, f"{GAME}: data was old@0123, is " in error) == (0, True)


def test_what_cannot_be_repeated_is_refused(capsys, tmp_path):
    assert "holds no bench.json" in bench(capsys, "--like", tmp_path)[2]
    assert bench(capsys, GAME, "--episodes", "1", "--out", tmp_path / "a")[0] == 0
    assert "name an environment" in bench(capsys, GAME, "--like", tmp_path / "a")[2]
