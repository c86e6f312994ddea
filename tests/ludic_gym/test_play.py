import asyncio
import io
import re

import pettingzoo
import pytest

from ludic_gym.cli import main
from ludic_gym.commands.play_command import farewell
from ludic_gym.policies import ScriptedPolicy
from ludic_gym.rollout import run_match
from ludic_gym.types import Task


@pytest.fixture(autouse=True)
def wide_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")


def play(monkeypatch, capsys, typed, *arguments):
    """The exit code and what the screen shows when `typed` is typed."""
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    code = main(["play", *arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_a_right_answer_wins_the_reward(monkeypatch, capsys):
    # Seed 0 asks: Dee has 67 pens and gets 13.
    code, screen = play(monkeypatch, capsys, "80\n", "ludic/Arithmetic-v0", "--seed", "0")
    assert code == 0
    assert "Dee has 67 pens and gets 13. How many?" in screen
    assert screen.endswith("success (the answer is 80)\nreward 1\n")


def test_a_wrong_answer_shows_the_right_one(monkeypatch, capsys):
    _, screen = play(monkeypatch, capsys, "81\n", "ludic/Arithmetic-v0", "--seed", "0")
    assert screen.endswith("failure (the answer is 80)\nreward 0\n")


def test_a_typing_error_does_not_lose_the_game(monkeypatch, capsys):
    _, screen = play(monkeypatch, capsys, "hello\nc3\n", "ludic/TicTacToe-v0")
    assert "'hello' is not allowed here; choose from: A1 A2 A3 B1 B2 B3 C1 C2 C3" in screen
    assert "illegal" not in screen
    # The opponent may have taken C1 or C2, but C3 is the human's.
    assert re.search(r"\n(C1|O) (C2|O) X\n", screen)


def test_who_sits_second_sees_the_opponents_first_move(monkeypatch, capsys):
    _, screen = play(
        monkeypatch, capsys, "", "ludic/TicTacToe-v0", "--seat", "second", "--against", "perfect"
    )
    assert "You play Tic-Tac-Toe as O" in screen
    board = screen.split("\n\n")[1].split("\n>")[0]
    assert board.count("X") == 1


def test_perfect_play_punishes_a_beginner(monkeypatch, capsys):
    # X takes an edge and then whatever is free; the last line must not be a win.
    typed = "A2\nB1\nB3\nC2\nA1\nA3\nB2\nC1\nC3\n" * 9
    _, screen = play(
        monkeypatch, capsys, typed, "ludic/TicTacToe-v0", "--against", "perfect", "--seed", "0"
    )
    assert screen.endswith(("loss\nreward -1\n", "draw\nreward 0\n"))


def test_long_lines_break_between_words_and_boards_stay(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    _, screen = play(monkeypatch, capsys, "", "ludic/TicTacToe-v0")
    assert "each free cell by its\nname. Three marks in a row, column or diagonal win." in screen
    assert "\nA1 A2 A3\nB1 B2 B3\nC1 C2 C3\n> " in screen


def test_the_same_seed_plays_the_same_game(monkeypatch, capsys):
    typed = "A1\nA2\nA3\nB1\nB2\nB3\nC1\nC2\nC3\n" * 9
    arguments = ("ludic/TicTacToe-v0", "--seed", "5")
    first, again = (play(monkeypatch, capsys, typed, *arguments) for _ in range(2))
    assert first == again


def test_the_end_of_input_leaves_politely(monkeypatch, capsys):
    code, screen = play(monkeypatch, capsys, "B2\n", "ludic/TicTacToe-v0")
    assert code == 0
    assert screen.endswith("left before the end\n")


@pytest.mark.parametrize("option", [("--against", "random"), ("--seat", "second")])
def test_nobody_to_play_against_in_an_env_for_one(monkeypatch, capsys, option):
    code, screen = play(monkeypatch, capsys, "", "ludic/Arithmetic-v0", *option)
    assert (code, screen) == (
        2,
        "ludic: ludic/Arithmetic-v0 is for one player: leave out --against and --seat\n",
    )


def test_an_unknown_opponent_is_refused_with_the_choices(monkeypatch, capsys):
    code, screen = play(monkeypatch, capsys, "", "ludic/TicTacToe-v0", "--against", "rnadom")
    assert code == 2
    assert "policy 'rnadom' is neither oracle, random, an http(s) address" in screen


def test_an_unknown_id_is_refused(monkeypatch, capsys):
    code, screen = play(monkeypatch, capsys, "", "ludic/TicTacTo-v0")
    assert (code, "Did you mean: `TicTacToe`" in screen) == (2, True)


def test_a_seed_below_zero_is_refused(monkeypatch, capsys):
    code, screen = play(monkeypatch, capsys, "", "ludic/TicTacToe-v0", "--seed", "-4")
    assert (code, screen) == (2, "ludic: seed must be at least 0, got -4\n")


def test_a_win_by_the_other_players_illegal_move_says_so():
    task = Task(env_id="ludic/TicTacToe-v0", seed=0)
    env = pettingzoo.make("aec", "ludic/TicTacToe-v0")
    you, other = env.possible_agents
    policies = {you: ScriptedPolicy(["B2"]), other: ScriptedPolicy(["55"])}
    said = farewell(*asyncio.run(run_match(env, policies, task)))
    assert said.endswith("\nthe other player's move '55' is not allowed\nwin\nreward 1")
