"""Continued runs of `ludic bench`: what is refused, and what may be added."""

import json

import pytest
from chat_server import answering, chat_server, completion

import ludic_gym
from ludic_gym.commands.main import main
from ludic_gym.records import read_episodes

SUMS = "ludic/Arithmetic-v0"
FILE = "ludic-Arithmetic-v0.jsonl"
QUESTION = '{"question": "1 + 1?", "answer": "#### 2"}\n'


def bench(capsys, *arguments):
    named = {"--policy", "--model", "--like"} & {*arguments}
    code = main(["bench", *arguments, *(() if named else ("--policy", "random"))])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "times.jsonl"}


def test_another_served_model_is_refused_with_both_names(capsys, tmp_path):
    with chat_server(answering(model="small-1")) as server:
        options = ["--policy", server.url, "--model", "small", "--episodes", "2"]
        assert bench(capsys, SUMS, *options, "--out", str(tmp_path))[0] == 0
        before = files(tmp_path)
        # The same address and the same name, behind which there is another model now.
        server.respond = answering(model="small-2")
        code, _, error = bench(capsys, SUMS, *options, "--out", str(tmp_path))
    assert code == 2
    assert "holds another run (served: 'small-1', now 'small-2'); name another folder" in error
    assert files(tmp_path) == before


def test_a_model_that_changes_during_a_run_ends_it_and_is_recorded_nowhere(capsys, tmp_path):
    count = 0

    def respond(path, headers, body):
        nonlocal count
        count += 1
        return 200, completion("5", "small-1" if count <= 4 else "small-2")

    with chat_server(respond) as server:
        options = ["--policy", server.url, "--model", "small", "--concurrency", "1"]
        code, _, error = bench(capsys, SUMS, *options, "--out", str(tmp_path))
    assert code == 2
    assert "episode 3: the server's model is 'small-2' now, and was 'small-1'" in error
    played = list(read_episodes(tmp_path / FILE))
    calls = [e.rollouts[0].steps[0].decision.completions[0].call for e in played]
    assert [call.model for call in calls] == ["small-1"] * 3


def test_a_record_holds_all_that_an_audit_needs(capsys, tmp_path):
    def respond(path, headers, body):
        return 200, completion("5", "small-1", system_fingerprint="fp_7")

    with chat_server(respond) as server:
        options = ["--policy", server.url, "--model", "small", "--temperature", "0.5"]
        out = ["--out", str(tmp_path), "--price", "3", "10"]
        assert bench(capsys, "ludic/GSM8K-v0", *options, *out, "--episodes", "1")[0] == 0
        body = server.requests[-1]
    record = json.loads((tmp_path / "ludic-GSM8K-v0.jsonl").read_text())
    call = record["rollouts"][0]["steps"][0]["decision"]["completions"][0]["call"]
    assert (call["model"], call["fingerprint"]) == ("small-1", "fp_7")
    assert {**call["parameters"], "messages": call["messages"]} == body
    assert call["messages"][0]["role"] == "system"
    assert call["usage"] == {"prompt_tokens": 7, "completion_tokens": 3}
    assert call["seconds"] > 0
    # 7 * 3 and 3 * 10, in millionths.
    assert (record["score"]["model"], record["score"]["cost"]) == ("small-1", 51e-6)
    assert record["score"]["data"].startswith("sample@")
    assert record["ludic"] == ludic_gym.__version__
    request = json.loads((tmp_path / "bench.json").read_text())
    assert request["served"] == "small-1"
    results = json.loads((tmp_path / "results.json").read_text())["ludic/GSM8K-v0"]
    assert (results["model"], results["prompt_tokens"], results["cost"]) == ("small-1", 7, 51e-6)


def test_changed_rows_of_one_path_are_refused_with_both_hashes(capsys, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(QUESTION)
    out = ["--data", str(rows), "--policy", "oracle", "--out", str(tmp_path / "run")]
    assert bench(capsys, "ludic/GSM8K-v0", *out)[0] == 0
    rows.write_text(QUESTION.replace("1?", "1 ?"))
    code, _, error = bench(capsys, "ludic/GSM8K-v0", *out)
    assert code == 2
    assert "(envs.ludic/GSM8K-v0.data: 'rows.jsonl@" in error
    assert ", now 'rows.jsonl@" in error


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (["--episodes", "3"], ["--episodes", "5"]),
        (["--episodes", "3"], ["--episodes", "3", "--samples", "4"]),
        (["--episodes", "3", "--samples", "2"], ["--episodes", "4", "--samples", "3"]),
    ],
)
def test_a_run_with_more_tasks_or_samples_adds_to_the_folder(capsys, tmp_path, first, then):
    grown, whole = tmp_path / "grown", tmp_path / "whole"
    # Random play follows the sampling seeds, so that equal tasks give equal files.
    env = ["ludic/TicTacToe-v0", "--policy", "random"]
    assert bench(capsys, *env, *first, "--out", str(grown))[0] == 0
    played = (grown / "ludic-TicTacToe-v0.jsonl").read_text().count("\n")
    assert bench(capsys, *env, *then, "--out", str(grown))[0] == 0
    assert bench(capsys, *env, *then, "--out", str(whole))[0] == 0
    assert files(grown) == files(whole)
    times = [(folder / "times.jsonl").read_text().splitlines() for folder in (grown, whole)]
    assert len(times[0]) == len(times[1]) > played
    named = [{(t["seed"], t["sampling_seed"]) for t in map(json.loads, lines)} for lines in times]
    assert named[0] == named[1]


@pytest.mark.parametrize(
    ("first", "then", "difference"),
    [
        (["--episodes", "5"], ["--episodes", "3"], "episodes: 5, now 3"),
        (["--episodes", "2", "--samples", "2"], ["--episodes", "4"], "samples: 2, now 1"),
        # Ten episodes instead of six, but of other tasks.
        (
            ["--episodes", "6"],
            ["--episodes", "5", "--samples", "2"],
            f"envs.{SUMS}.episodes: 6, now 10",
        ),
    ],
)
def test_fewer_tasks_or_samples_are_refused(capsys, tmp_path, first, then, difference):
    assert bench(capsys, SUMS, *first, "--out", str(tmp_path))[0] == 0
    before = files(tmp_path)
    code, _, error = bench(capsys, SUMS, *then, "--out", str(tmp_path))
    assert code == 2
    assert difference in error
    assert files(tmp_path) == before


def test_an_episode_that_the_command_does_not_play_is_named(capsys, tmp_path):
    out = ["--episodes", "2", "--out", str(tmp_path)]
    assert bench(capsys, SUMS, *out)[0] == 0
    path = tmp_path / FILE
    path.write_text(path.read_text().replace('"seed":1,', '"seed":7,'))
    code, _, error = bench(capsys, SUMS, *out)
    assert code == 2
    assert "has an episode that this command does not play" in error
