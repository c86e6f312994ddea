"""`ludic bench` with several policies: the same tasks in one table, or games against each other."""

import json

import pytest
from chat_server import MODELS, chat_server, completion

from ludic_gym.bench.folder import read_request
from ludic_gym.commands.main import main
from ludic_gym.records import read_episodes

SUMS = "ludic/Arithmetic-v0"
GAME = ["ludic/TicTacToe-v0", "--tournament"]


def by_model(**texts):
    """A server whose models give a text each; the others are refused."""

    def respond(path, headers, body):
        if body is None:
            return 200, MODELS
        if body["model"] not in texts:
            return 404, {"error": {"message": f"The model {body['model']} does not exist."}}
        return 200, completion(texts[body["model"]], body["model"])

    return respond


def models(*names):
    return [word for name in names for word in ("--model", name)]


def policies(*names):
    return [word for name in names for word in ("--policy", name)]


def bench(capsys, *words):
    code = main(["bench", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_one_model_that_fails_costs_only_itself(capsys, tmp_path):
    with chat_server(by_model(small="5", large="5")) as server:
        words = [SUMS, "--episodes", "6", "--policy", server.url, "--out", str(tmp_path / "out")]
        names = models("small", "absent", "large")
        code, out, err = bench(capsys, *words, *names)
    assert code == 1
    title, _, first, second, missing, *lines = out.splitlines()
    assert title.strip() == f"{SUMS}: difference from small"
    assert first.split()[:3] == ["small", "1", "6"]
    assert second.split()[:3] == ["large", "1", "6"]
    assert missing.split() == ["absent", "-", "0", "-", "-", "-", "-", "-"]
    assert any(line.startswith("absent: ") and "no model 'absent'" in line for line in lines)
    assert "[2/3] absent" in err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["large", "small"]
    assert read_request(tmp_path / "out" / "large")["model"] == "large"


def test_the_same_command_plays_what_is_missing(capsys, tmp_path):
    words = [SUMS, "--episodes", "6", "--out", str(tmp_path)]
    with chat_server(by_model(small="5")) as server:
        words += ["--policy", server.url]
        bench(capsys, *words, *models("small", "large"))
        before = len(server.requests)
        server.respond = by_model(small="5", large="5")
        code, _, _ = bench(capsys, *words, *models("small", "large"))
        again = [body["model"] for body in server.requests[before:]]
    assert code == 0
    # Of each a probe, and of the finished one nothing else.
    assert (again.count("small"), again.count("large")) == (1, 7)


def test_differences_are_paired_with_the_first_policy(capsys):
    words = [SUMS, *policies("random", "oracle"), "--episodes", "10", "--json"]
    code, out, _ = bench(capsys, *words)
    found = json.loads(out)
    (board,) = found["boards"]
    best, random = board["runs"]
    assert (code, board["baseline"], best["name"], best["rank"], random["rank"]) == (
        *(0, "random", "oracle", 1, 2),
    )
    assert (best["difference"]["difference"], best["difference"]["p_value"]) == (1.0, 2 / 2**10)
    assert random["difference"] is None
    assert found["runs"]["oracle"]["results"][SUMS]["successes"] == 10


def test_a_model_that_changes_during_the_run_keeps_the_episodes_before(capsys):
    count = 0

    def respond(path, headers, body):
        nonlocal count
        count += body is not None
        return (200, MODELS) if body is None else (200, completion("5", "a" if count < 5 else "b"))

    with chat_server(respond) as server:
        words = ["--policy", server.url, *models("small", "large"), "--concurrency", "1"]
        code, out, _ = bench(capsys, SUMS, "--episodes", "6", *words, "--json")
    runs = json.loads(out)["runs"]
    assert code == 1
    assert "the server's model is 'b' now, and was 'a'" in runs["small"]["failure"]
    assert runs["small"]["results"][SUMS]["episodes"] >= 3
    assert (runs["large"]["failure"], runs["large"]["results"][SUMS]["episodes"]) == ("", 6)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([SUMS, *models("a/b", "a-b")], "two of the policies have one name"),
        ([SUMS, *policies("random", "random")], "two of the policies have one name"),
        ([SUMS, *models("vllm/a", "vllm/b"), "--temperature", "-1"], "temperature"),
        ([SUMS, *policies("random", "oracle"), "--model", "a"], "name each model as a --policy"),
        (["ludic/Arithmetik-v0", *models("vllm/a", "vllm/b")], "Arithmetic"),
    ],
)
def test_mistakes_in_what_all_runs_share_end_the_command_at_once(capsys, words, why):
    code, out, err = bench(capsys, *words)
    assert (code, out) == (2, "")
    assert why in err


def test_ctrl_c_prints_what_has_ended(capsys, monkeypatch, tmp_path):
    source = "def make(env):\n    raise KeyboardInterrupt\n"
    (tmp_path / "impatient.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names = policies("oracle", "impatient:make", "random")
    code, out, err = bench(capsys, SUMS, "--episodes", "3", *names)
    _, _, first, second = out.splitlines()
    assert code == 130
    assert first.split()[:3] == ["oracle", "1", "3"]
    assert second.split()[:3] == ["impatient:make", "-", "0"]
    assert "[3/3]" not in err


def test_the_strongest_of_a_tournament_is_first_with_what_it_took_from_each(tmp_path, capsys):
    words = [*GAME, *policies("random", "oracle"), "--episodes", "5", "--out", str(tmp_path)]
    code, table, bar = bench(capsys, *words)
    assert code == 0
    assert "10/10" in bar
    _, head, first, second = table.strip().splitlines()
    assert head.split() == ["player", "Elo", "95%", "points", "games", "v", "oracle", "v", "random"]
    assert (first.split()[0], second.split()[0]) == ("oracle", "random")
    path = tmp_path / "ludic-TicTacToe-v0.jsonl"
    assert len(list(read_episodes(path))) == 10
    # Games are not added to it: they would count twice.
    code, _, error = bench(capsys, *words)
    assert (code, "ludic-TicTacToe-v0.jsonl exists; name another folder" in error) == (2, True)


def test_games_that_fail_are_named_and_the_code_is_1(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "silent_agents.py").write_text(
        "from ludic_gym import ScriptedPolicy\ndef make(env):\n    return ScriptedPolicy([])\n"
    )
    names = policies("random", "silent_agents:make")
    code, screen, _ = bench(capsys, *GAME, "--episodes", "1", *names)
    assert code == 1
    assert "game 0: ScriptExhausted" in screen
    # Both games failed, the one from each seat.
    assert "no ratings: 2 of 2 episodes (100.0%)" in " ".join(screen.split())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([SUMS, "--tournament"], "is no two-player game"),
        ([*GAME, "--seed", "-1"], "seed is at least 0"),
        ([*GAME, "--max-turns", "0"], "max_turns is at least 1, got 0"),
        ([GAME[0], SUMS, "--tournament"], "of one game"),
    ],
)
def test_a_tournament_that_cannot_be_played_is_refused(capsys, words, why):
    code, _, error = bench(capsys, *words, *policies("random", "oracle"))
    assert (code, why in error) == (2, True)
