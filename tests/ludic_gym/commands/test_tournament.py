import pytest

from ludic_gym.commands.main import main
from ludic_gym.records import read_episodes

GAME = ["ludic/TicTacToe-v0", "--games", "5"]


def tournament(capsys, *words):
    code = main(["tournament", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_strongest_is_first_with_what_it_took_from_each(tmp_path, capsys):
    out = tmp_path / "games.jsonl"
    players = ["--players", "random", "best=oracle", "--out", str(out)]
    code, table, bar = tournament(capsys, *GAME, *players)
    assert code == 0
    assert "10/10" in bar
    _, head, first, second = table.strip().splitlines()
    assert head.split() == ["player", "Elo", "95%", "points", "games", "v", "best", "v", "random"]
    assert (first.split()[0], second.split()[0]) == ("best", "random")
    assert len(list(read_episodes(out))) == 10


def test_a_file_that_exists_is_not_added_to(tmp_path, capsys):
    out = tmp_path / "games.jsonl"
    out.write_text("")
    words = [*GAME, "--players", "random", "oracle", "--out", str(out)]
    code, _, error = tournament(capsys, *words)
    assert (code, "games.jsonl exists; name another file" in error) == (2, True)


def test_games_that_fail_are_named_and_the_code_is_1(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "silent_agents.py").write_text(
        "from ludic_gym import ScriptedPolicy\ndef make(env):\n    return ScriptedPolicy([])\n"
    )
    players = ["--players", "random", "silent_agents:make"]
    code, screen, _ = tournament(capsys, *GAME[:1], "--games", "1", *players)
    assert code == 1
    assert "game 0: ScriptExhausted" in screen


@pytest.mark.parametrize("players", [["random"], ["random", "random"], ["a=random", "a=oracle"]])
def test_players_have_names_of_their_own(players, capsys):
    code, _, error = tournament(capsys, *GAME, "--players", *players)
    assert (code, "at least two players, each once" in error) == (2, True)


def test_a_game_for_one_is_refused(capsys):
    words = ["ludic/Arithmetic-v0", "--players", "random", "oracle"]
    code, _, error = tournament(capsys, *words)
    assert (code, "is no two-player game" in error) == (2, True)
