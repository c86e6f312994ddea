import json
import signal
import subprocess
import sys
import time

import pytest

import ludic_gym as lg
from ludic_gym.bench.folder import open_folder, read_request
from ludic_gym.commands.main import main

QUESTIONS = (
    '{"question": "1 + 1?", "answer": "#### 2"}\n{"question": "2 + 2?", "answer": "#### 4"}\n'
)


def bench(capsys, *arguments):
    named = {"--policy", "--model", "--like"} & {*arguments}
    code = main(["bench", *arguments, *(() if named else ("--policy", "random"))])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


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


def never_parsed(env):
    parser = lg.xml_tag_parser("answer")
    return lg.Parsed(lg.ChatPolicy(lg.ScriptedClient(lambda messages, sampling: "hm")), parser)


@pytest.mark.parametrize(("options", "turns"), [([], 1), (["--attempts", "3"], 3)])
def test_a_question_has_one_attempt_unless_more_are_given(tmp_path, capsys, options, turns):
    policy = f"{__name__}:never_parsed"
    arguments = ["--episodes", "2", "--policy", policy, "--out", str(tmp_path), *options]
    code, _, _ = bench(capsys, "ludic/Arithmetic-v0", *arguments)
    result = json.loads((tmp_path / "results.json").read_text())["ludic/Arithmetic-v0"]
    assert code == 0
    assert (result["successes"], result["turns"]) == (0, 2 * turns)
    assert result["outcomes"] == {"illegal": 2}


def silent(env):
    return lg.ScriptedPolicy([])


def test_failed_episodes_are_named_and_the_code_is_1(capsys):
    arguments = ["--episodes", "2", "--policy", f"{__name__}:silent"]
    code, screen, _ = bench(capsys, "ludic/Arithmetic-v0", *arguments)
    assert code == 1
    assert "\nludic/Arithmetic-v0, episode 0, 1: ScriptExhausted: all 0 scripted" in screen
    assert "0/0" in screen


def forgets_its_tools(env):
    return lg.Harness(tool_format="text").policy(lg.ScriptedClient(["7"]), env)


def test_a_model_that_calls_no_tool_where_there_are_some_is_named(capsys):
    arguments = ["--episodes", "2", "--policy", f"{__name__}:forgets_its_tools"]
    code, screen, _ = bench(capsys, "ludic/PythonToolMath-v0", *arguments)
    assert code == 0
    assert "ludic/PythonToolMath-v0: no tool was called, and there are tools" in screen


def test_an_unknown_policy_is_refused_with_the_choices(capsys):
    code, _, error = bench(capsys, "ludic/Arithmetic-v0", "--policy", "orcale")
    assert code == 2
    assert error == (
        "ludic: 'orcale' names nothing that plays: write openai/orcale (or another vendor before "
        "it), or an address and this name (--policy http://HOST:PORT/v1 --model orcale). Others "
        "are oracle, random, easy, medium, hard, ludic-small, module:function, hf/NAME and a run "
        "folder that exists\n"
    )


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "times.jsonl"}


def test_the_same_command_plays_nothing_twice(tmp_path, capsys):
    arguments = ["ludic/Arithmetic-v0", "--episodes", "3", "--policy", "oracle"]
    _, table, _ = bench(capsys, *arguments, "--out", str(tmp_path))
    before = files(tmp_path)
    _, again, bar = bench(capsys, *arguments, "--out", str(tmp_path))
    assert (again, files(tmp_path)) == (table, before)
    assert "3/3" in bar
    assert len((tmp_path / "times.jsonl").read_text().splitlines()) == 3


def test_another_command_into_the_same_folder_is_refused_with_what_differs(tmp_path, capsys):
    arguments = ["ludic/Arithmetic-v0", "--episodes", "1", "--out", str(tmp_path)]
    assert bench(capsys, *arguments)[0] == 0
    before = files(tmp_path)
    code, table, error = bench(capsys, *arguments, "--seed", "4", "--temperature", "0.5")
    assert (code, table) == (2, "")
    assert "holds another run (sampling.temperature: 1.0, now 0.5; " in error
    assert "seed: 0, now 4); name another folder" in error
    assert files(tmp_path) == before


def test_failed_episodes_are_played_again_by_the_same_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agents_for_bench.py").write_text(
        "from pathlib import Path\n"
        "from ludic_gym import OraclePolicy, ScriptedPolicy\n"
        "def make(env):\n"
        "    return OraclePolicy(env) if Path('ready').exists() else ScriptedPolicy([])\n"
    )
    arguments = ["ludic/Arithmetic-v0", "--episodes", "3", "--out", "results"]
    arguments += ["--policy", "agents_for_bench:make"]
    code, table, _ = bench(capsys, *arguments)
    assert code == 1
    assert "0/0" in table
    (tmp_path / "ready").touch()
    code, table, _ = bench(capsys, *arguments)
    assert code == 0
    assert "3/3" in table


def slow_oracle(folder):
    """A module whose policy takes a while: a kill finds episodes in flight, ending in any order."""
    (folder / "slow_agents.py").write_text(
        "import asyncio, random\n"
        "from ludic_gym import OraclePolicy\n"
        "class Slow(OraclePolicy):\n"
        "    async def act(self, sampling):\n"
        "        await asyncio.sleep(random.uniform(0.005, 0.035))\n"
        "        return await super().act(sampling)\n"
        "make = Slow\n"
    )


def command_line(out):
    words = "bench ludic/TicTacToe-v0 ludic/Arithmetic-v0 --policy slow_agents:make --episodes 40"
    return [sys.executable, "-m", "ludic_gym", *words.split(), "--concurrency", "4", "--out", out]


@pytest.mark.long
@pytest.mark.parametrize(
    "sent", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_run_that_was_killed_ends_as_one_that_was_not(tmp_path, sent):
    slow_oracle(tmp_path)
    process = subprocess.Popen(
        command_line("killed"), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    path = tmp_path / "killed" / "ludic-TicTacToe-v0.jsonl"
    while not (path.exists() and path.read_bytes().count(b"\n") >= 5):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(sent)
    _, errors = process.communicate()
    assert process.returncode == (130 if sent == signal.SIGINT else -sent)
    assert (b"the same command continues from here" in errors) == (sent == signal.SIGINT)
    assert path.read_bytes().count(b"\n") < 40
    for out in ("killed", "straight"):
        subprocess.run(command_line(out), cwd=tmp_path, check=True, capture_output=True)
    assert files(tmp_path / "killed") == files(tmp_path / "straight")
    assert len(json.loads((tmp_path / "killed" / "results.json").read_text())) == 2


def test_a_folder_is_played_into_by_one_process(tmp_path, capsys):
    arguments = ["ludic/Arithmetic-v0", "--episodes", "1", "--out", str(tmp_path)]
    assert bench(capsys, *arguments)[0] == 0
    with open_folder(tmp_path, read_request(tmp_path)):
        code, _, error = bench(capsys, *arguments)
    assert code == 2
    assert "another process plays into" in error


def test_a_rate_that_is_too_low_is_told_and_the_code_is_1(capsys):
    arguments = ["ludic/Arithmetic-v0", "--episodes", "2", "--fail-under", "0.9"]
    code, screen, _ = bench(capsys, *arguments, "--policy", "random")
    assert code == 1
    assert "ludic/Arithmetic-v0: success rate 0.0% is not at least 90.0%" in screen
    assert bench(capsys, *arguments, "--policy", "oracle")[0] == 0


def test_a_suite_takes_the_bundled_samples_of_its_data_sets(capsys):
    words = ["core", "--data", "sample", "--policy", "oracle", "--episodes", "2"]
    code, shown, _ = bench(capsys, *words)
    assert code == 0
    assert "ludic/GSM8K-v0 (sample)" in shown
    assert "ludic/Countdown-v0 " in shown


def test_ctrl_c_shows_and_keeps_what_had_ended(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pressing_agents.py").write_text(
        "import signal\n"
        "from ludic_gym import OraclePolicy\n"
        "played = []\n"
        "def make(env):\n"
        "    played.append(env)\n"
        "    if len(played) == 4:\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "    return OraclePolicy(env)\n"
    )
    options = ["--policy", "pressing_agents:make", "--concurrency", "1", "--out", "results"]
    code, table, error = bench(capsys, "ludic/Arithmetic-v0", *options)
    assert code == 130
    assert "interrupted: these are the finished episodes; the same command" in error
    kept = (tmp_path / "results" / "ludic-Arithmetic-v0.jsonl").read_text().splitlines()
    assert 1 <= len(kept) < 100
    assert f"{len(kept)}/{len(kept)}" in table


def aime_rows(tmp_path):
    path = tmp_path / "aime.jsonl"
    rows = [{"problem": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(2)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def test_a_published_benchmark_has_its_publishers_sampling_unless_options_name_another(
    tmp_path, capsys
):
    words = ["--data", aime_rows(tmp_path), "--policy", "oracle", "--out", str(tmp_path / "out")]
    code, shown, _ = bench(capsys, "aime", *words)
    assert code == 0
    # 64 samples of each of the two rows.
    assert "128/128" in shown
    stated = "ludic/AIME-v0: temperature 0.6, top_p 0.95, max_tokens 32768, samples 64 (arXiv:2501"
    assert stated in " ".join(shown.split())
    (first, *_) = lg.read_episodes(tmp_path / "out" / "ludic-AIME-v0.jsonl")
    sampling = first.task.sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.6, 0.95, 32768)
    # The options replace what they name, and what is left is not as published.
    words = words[:-2]
    _, shown, _ = bench(capsys, "aime", *words, "--samples", "1", "--max-tokens", "512")
    assert "2/2" in shown
    assert "ludic/AIME-v0: temperature 0.6, top_p 0.95, max_tokens 512" in " ".join(shown.split())
    assert "arXiv" not in shown
    _, shown, _ = bench(capsys, "aime", *words, "--samples", "1", "--json")
    limits = json.loads(shown)["limits"]["ludic/AIME-v0"]
    assert (limits["temperature"], limits["samples"]) == (0.6, 1)


def test_a_run_of_a_published_benchmark_continues_and_is_repeated_with_its_limits(tmp_path, capsys):
    words = ["aime", "--data", aime_rows(tmp_path), "--policy", "oracle"]
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert bench(capsys, *words, "--samples", "2", "--out", one)[0] == 0
    # More samples add to it; the same run again, by its folder.
    assert bench(capsys, *words, "--samples", "3", "--out", one)[0] == 0
    code, shown, _ = bench(capsys, "--like", one, "--out", two)
    assert (code, "6/6" in shown, "temperature 0.6" in shown) == (0, True, True)
    limits = [json.loads((tmp_path / name / "bench.json").read_text()) for name in ("one", "two")]
    assert limits[0]["envs"] == limits[1]["envs"]
    assert limits[0]["envs"]["ludic/AIME-v0"]["limits"]["samples"] == 3


def test_an_id_of_the_catalogue_has_published_limits_by_the_benchmarks_name_alone(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"problem": "1 + 1?", "answer": "2", "level": 1, "subject": "Algebra"}\n')
    words = ["--data", str(rows), "--policy", "oracle"]
    assert "4/4" in bench(capsys, "math-500", *words)[1]
    assert "1/1" in bench(capsys, "ludic/MATH-v0", *words)[1]


def test_columns_are_named_on_the_command_line_and_bad_rows_are_reported(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    lines = [{"q": f"{n} + 1?", "gold": {"value": n + 1}} for n in range(3)]
    rows.write_text("\n".join(map(json.dumps, [*lines, {"q": "4 + 1?", "gold": None}])))
    fields = ["--field", "question=q", "answer=gold.value"]
    words = ["bench", "ludic/GSM8K-v0", "--data", str(rows), "--policy", "oracle", *fields]
    assert main(words) == 2
    assert "rows.jsonl: 1 of 4 rows cannot be used: " in capsys.readouterr().err
    with pytest.warns(lg.SkippedRowsWarning, match="1 of 4 rows cannot be used"):
        assert main([*words, "--env-kwargs", "on_bad_row=skip", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"].values()
    assert (result["successes"], result["episodes"]) == (3, 3)
    assert result["data"].startswith("rows.jsonl without 1 row@")
