import json
import signal
from contextlib import contextmanager

import pytest

from ludic_gym.cli import main
from ludic_gym.commands import bench_command
from ludic_gym.commands.arguments import keyword_arguments
from ludic_gym.errors import ConfigError

QUESTIONS = (
    '{"question": "1 + 1?", "answer": "#### 2"}\n{"question": "2 + 2?", "answer": "#### 4"}\n'
)


def bench(capsys, *arguments):
    code = main(["bench", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_oracle_gets_every_row_right(tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text(QUESTIONS)
    code, table, bar = bench(
        capsys, "ludic/GSM8K-v0", "--data", str(tmp_path / "rows.jsonl"), "--policy", "oracle"
    )
    assert code == 0
    # Wilson, 2 of 2: 2 / (2 + 1.96^2) = 34.2%.
    assert "2/2" in table
    assert "[34.2, 100.0]" in table
    assert "2/2" in bar
    assert "success 100.0%" in bar


def test_random_text_answers_nothing(tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text(QUESTIONS)
    _, table, _ = bench(capsys, "ludic/GSM8K-v0", "--data", str(tmp_path / "rows.jsonl"))
    assert "0/2" in table


def test_several_envs_get_a_line_and_a_file_each(tmp_path, capsys):
    ids = ["ludic/TicTacToe-v0", "ludic/Arithmetic-v0"]
    options = ["--episodes", "5", "--policy", "oracle", "--out", str(tmp_path / "results")]
    code, table, _ = bench(capsys, *ids, *options)
    assert code == 0
    assert all(env_id in table for env_id in ids)
    for name in ("ludic-TicTacToe-v0", "ludic-Arithmetic-v0"):
        lines = (tmp_path / "results" / f"{name}.jsonl").read_text().splitlines()
        assert len(lines) == 5
    assert json.loads(lines[1])["policy"] == "oracle"


def test_env_arguments_and_sampling_reach_the_episodes(tmp_path, capsys):
    options = "--episodes 1 --env-kwargs digits=3 operations=* --temperature 0.5 --max-turns 4"
    out = str(tmp_path)
    code, _, _ = bench(capsys, "ludic/Arithmetic-v0", *options.split(), "--out", out, "--seed", "9")
    record = json.loads((tmp_path / "ludic-Arithmetic-v0.jsonl").read_text())
    assert code == 0
    task = record["task"]
    assert task["kwargs"] == {"digits": 3, "operations": "*"}
    assert (task["sampling"]["temperature"], task["max_turns"], task["seed"]) == (0.5, 4, 9)


def test_failed_episodes_are_named_and_the_code_is_1(capsys):
    # Nothing listens on the discard port.
    code, screen, _ = bench(
        capsys, "ludic/Arithmetic-v0", "--episodes", "2", "--policy", "http://127.0.0.1:9/v1",
        "--model", "none",
    )  # fmt: skip
    assert code == 1
    assert "\nludic/Arithmetic-v0, episode 0, 1: ClientError: http://127.0.0.1:9/v1/" in screen
    assert "0/0" in screen


def test_an_unknown_policy_is_refused_with_the_choices(capsys):
    code, _, error = bench(capsys, "ludic/Arithmetic-v0", "--policy", "orcale")
    assert code == 2
    assert error == (
        "ludic: policy 'orcale' is neither oracle, random, an http(s) address, "
        "nor a run folder that exists\n"
    )


def test_data_that_is_not_there_is_refused(capsys):
    code, _, error = bench(capsys, "ludic/GSM8K-v0", "--data", "absent.jsonl")
    assert code == 2
    assert "absent.jsonl" in error


def test_results_that_exist_are_not_overwritten(tmp_path, capsys):
    arguments = ["ludic/Arithmetic-v0", "--episodes", "1", "--out", str(tmp_path)]
    assert bench(capsys, *arguments)[0] == 0
    code, _, error = bench(capsys, *arguments)
    assert code == 2
    assert "holds an earlier run" in error


def test_an_earlier_run_of_any_env_is_found_before_the_first_is_played(tmp_path, capsys):
    options = ["--episodes", "1", "--out", str(tmp_path)]
    assert bench(capsys, "ludic/Arithmetic-v0", *options)[0] == 0
    code, table, error = bench(capsys, "ludic/TicTacToe-v0", "ludic/Arithmetic-v0", *options)
    assert (code, table) == (2, "")
    assert "ludic-Arithmetic-v0.jsonl holds an earlier run" in error
    assert not (tmp_path / "ludic-TicTacToe-v0.jsonl").exists()


def test_ctrl_c_shows_and_keeps_what_had_ended(tmp_path, capsys, monkeypatch):
    append = bench_command.open_transcripts

    @contextmanager
    def pressed_after_the_third(path, policy):
        with append(path, policy=policy) as record:

            def record_and_press(episode):
                record(episode)
                if episode.index == 2:
                    signal.raise_signal(signal.SIGINT)

            yield record_and_press

    monkeypatch.setattr(bench_command, "open_transcripts", pressed_after_the_third)
    options = ["--policy", "oracle", "--concurrency", "1", "--out", str(tmp_path)]
    code, table, error = bench(capsys, "ludic/Arithmetic-v0", *options)
    assert code == 130
    assert "3/3" in table
    assert "interrupted: these are the episodes that had ended" in error
    assert len((tmp_path / "ludic-Arithmetic-v0.jsonl").read_text().splitlines()) == 3


def test_keyword_values_are_json_where_they_read_as_json():
    pairs = ["draw_reward=0.5", "opponent=perfect", "name=a=b", "flag=true", 'text="7"']
    assert keyword_arguments(pairs) == {
        "draw_reward": 0.5,
        "opponent": "perfect",
        "name": "a=b",
        "flag": True,
        "text": "7",
    }


@pytest.mark.parametrize("word", ["opponent", "=5", "two words=5"])
def test_words_that_are_no_pair_are_refused(word):
    with pytest.raises(ConfigError, match="not of the form key=value"):
        keyword_arguments([word])
