"""`ludic bench --repeat`: one recorded episode once more."""

import json

import pytest
from chat_server import answering, chat_server

import ludic_gym as lg
from ludic_gym.commands.main import main

FILE = "ludic-TicTacToe-v0.jsonl"


def bench(capsys, *arguments):
    code = main(["bench", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_an_episode_is_played_again_by_its_policy(capsys, tmp_path):
    played = ["ludic/TicTacToe-v0", "--policy", "random", "--episodes", "4", "--seed", "30"]
    assert bench(capsys, *played, "--out", str(tmp_path))[0] == 0
    before = (tmp_path / FILE).read_bytes()
    code, screen, _ = bench(capsys, "--repeat", f"{tmp_path / FILE}:2")
    assert code == 0
    assert "ludic/TicTacToe-v0, seed 32" in screen
    assert screen.endswith("\nthe actions are the same\n")
    rows = {line.split()[0]: line.split()[1:] for line in screen.splitlines()}
    assert rows["recorded"] == rows["now"]
    assert (tmp_path / FILE).read_bytes() == before


def test_another_policy_and_what_changed_are_shown(capsys, tmp_path):
    played = ["ludic/TicTacToe-v0", "--policy", "random", "--episodes", "1"]
    assert bench(capsys, *played, "--out", str(tmp_path))[0] == 0
    path = tmp_path / FILE
    record = json.loads(path.read_text())
    record["versions"]["numpy"] = "1.0"
    path.write_text(json.dumps(record) + "\n")
    code, screen, _ = bench(capsys, "--repeat", f"{path}:0", "--policy", "oracle")
    assert code == 0
    assert "numpy: 1.0, now " in screen
    assert "the actions differ from turn 1 on: " in screen


def silent(env):
    return lg.ScriptedPolicy([])


def test_a_failed_episode_can_be_played_again(capsys, tmp_path):
    played = ["ludic/TicTacToe-v0", "--policy", f"{__name__}:silent", "--episodes", "1"]
    assert bench(capsys, *played, "--out", str(tmp_path))[0] == 1
    spec = f"{tmp_path / FILE}:0"
    code, screen, _ = bench(capsys, "--repeat", spec)
    assert (code, "ScriptExhausted" in screen) == (1, True)
    code, screen, _ = bench(capsys, "--repeat", spec, "--policy", "oracle")
    assert (code, "the recorded episode had failed: ScriptExhausted" in screen) == (0, True)


def test_a_model_is_asked_for_by_its_recorded_name(capsys, tmp_path):
    with chat_server(answering("5", "small-1")) as server:
        played = ["ludic/Arithmetic-v0", "--policy", server.url, "--model", "small"]
        assert bench(capsys, *played, "--episodes", "2", "--out", str(tmp_path))[0] == 0
        server.respond = answering("6", "small-2")
        code, screen, _ = bench(capsys, "--repeat", f"{tmp_path}/ludic-Arithmetic-v0.jsonl:1")
        bodies = server.requests
    assert code == 0
    # The probe and two episodes, then the probe and the episode again.
    assert len(bodies) == 5
    assert bodies[4] in bodies[1:3]
    assert "small-1" in screen
    assert "small-2" in screen
    assert "differ from turn 1 on: '5', now '6'" in screen


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("a.jsonl", "--repeat is FILE:INDEX"),
        ("absent.jsonl:3", "there is no file 'absent.jsonl'"),
        ("{file}:7", "has the index 7"),
    ],
)
def test_a_record_that_is_not_there_is_refused(capsys, tmp_path, spec, complaint):
    file = tmp_path / "a.jsonl"
    file.write_text("")
    code, _, error = bench(capsys, "--repeat", spec.format(file=file))
    assert (code, complaint in error) == (2, True)


def test_a_line_that_is_no_record_of_a_benchmark_is_refused(capsys, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"index": 0, "schema": "ludic.episode"}\n')
    code, _, error = bench(capsys, "--repeat", f"{tmp_path}/a.jsonl:0")
    assert (code, "no record of `ludic bench`: KeyError('version')" in error) == (2, True)
