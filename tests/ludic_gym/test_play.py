import asyncio
import io
import os
import pty
import re
import select
import subprocess
import sys
from typing import ClassVar

import gymnasium as gym
import pettingzoo
import pytest
from pettingzoo import AECEnv, ParallelEnv

from ludic_gym.commands.main import main
from ludic_gym.commands.play import farewell, read_reply
from ludic_gym.envs.core.base import TextEnv, end
from ludic_gym.play import play as played
from ludic_gym.policies.reference import ScriptedPolicy
from ludic_gym.records import read_episodes
from ludic_gym.rollout.match import run_match
from ludic_gym.spaces import TEXT
from ludic_gym.types import Task
from ludic_gym.wrappers.common import TurnLimit


@pytest.fixture(autouse=True)
def wide_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")


def play(monkeypatch, capsys, typed, *arguments):
    """The exit code and what the screen shows when `typed` is typed."""
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    code = main(["play", *arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.mark.parametrize(
    ("typed", "end"),
    [
        ("80\n", "success (the answer is 80)\nreward 1\n"),
        ("81\n", "failure (the answer is 80)\nreward 0\n"),
    ],
)
def test_an_answer_is_graded_and_the_right_one_shown(monkeypatch, capsys, typed, end):
    # Seed 0 asks about 67 pens and 13 more.
    code, screen = play(monkeypatch, capsys, typed, "ludic/Arithmetic-v0", "--seed", "0")
    assert code == 0
    assert "Dee has 67 pens and gets 13 more pens. How many pens does Dee have now?" in screen
    assert screen.endswith(end)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ludic/TicTacTo-v0", "Did you mean: `TicTacToe`"),
        ("ludic/TicTacToe-v0 --seed -4", "ludic: seed must be at least 0, got -4\n"),
        ("ludic/TicTacToe-v0 --against rnadom", "'rnadom' names nothing that plays: write openai/"),
        ("ludic/Arithmetic-v0 --against random", "one player: leave out --against and --seat\n"),
        ("ludic/Arithmetic-v0 --seat second", "one player: leave out --against and --seat\n"),
    ],
)
def test_what_cannot_be_played_is_refused(monkeypatch, capsys, words, said):
    code, screen = play(monkeypatch, capsys, "", *words.split())
    assert (code, said in screen) == (2, True)


def test_a_typing_error_does_not_lose_the_game(monkeypatch, capsys):
    _, screen = play(monkeypatch, capsys, "hello\nc3\n", "ludic/TicTacToe-v0")
    assert "'hello' is not legal; choose from: A1, A2, A3, B1, B2, B3, C1, C2, C3" in screen
    assert "illegal" not in screen
    # The opponent may have taken C1 or C2, but C3 is the human's.
    assert re.search(r"\nC [.O] [.O] X\n", screen)


def test_who_sits_second_sees_the_opponents_first_move(monkeypatch, capsys):
    _, screen = play(
        monkeypatch, capsys, "", "ludic/TicTacToe-v0", "--seat", "second", "--against", "perfect"
    )
    assert "You play Tic-Tac-Toe as O" in screen
    board = screen.split("\n\n")[2].split("\n>")[0]
    assert board.count("X") == 1


def test_long_lines_break_between_words_and_boards_stay(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    _, screen = play(monkeypatch, capsys, "", "ludic/TicTacToe-v0")
    assert "The rows of the\nboard are A to C, its columns 1 to 3, and a dot" in screen
    assert "\n  1 2 3\nA . . .\nB . . .\nC . . .\n> " in screen


def test_the_same_seed_plays_the_same_game(monkeypatch, capsys):
    typed = "A1\nA2\nA3\nB1\nB2\nB3\nC1\nC2\nC3\n" * 9
    arguments = ("ludic/TicTacToe-v0", "--seed", "5")
    first, again = (play(monkeypatch, capsys, typed, *arguments) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("name", ["Werewolf", "Negotiation", "LiarsDice"])
def test_games_of_words_can_be_played_without_naming_a_rival(monkeypatch, capsys, name):
    typed = "see Uwe\nhello\nhello\n"
    code, screen = play(monkeypatch, capsys, typed, f"ludic/{name}-v0", "--seed", "0")
    assert (code, screen[-20:]) == (0, "left before the end\n")
    code, other = play(
        monkeypatch, capsys, typed, f"ludic/{name}-v0", "--seed", "0", "--against", "random"
    )
    # Players drawn at random say something else than those of the game.
    assert (code, screen != other) == (0, True)


def test_a_player_of_the_game_is_found_by_its_name(monkeypatch, capsys):
    typed = "propose: 0 0 0\n"
    _, screen = play(
        monkeypatch, capsys, typed, "ludic/Negotiation-v0", "--seed", "0", "--against", "soft"
    )
    assert "They accepted the proposal" in screen


@pytest.mark.parametrize(
    ("typed", "heard"),
    [
        ("```python\nprint(1)\n```\n", ["```python\nprint(1)\n```"]),
        ("so <answer>1 2\n3 4</answer>\nnext\n", ["so <answer>1 2\n3 4</answer>", "next"]),
        ("one\\\ntwo\\\nthree\n", ["one\ntwo\nthree"]),
        ("a ```b``` c\n", ["a ```b``` c"]),
    ],
)
def test_a_reply_can_have_several_lines(monkeypatch, typed, heard):
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert [read_reply() for _ in heard] == heard


def test_the_end_of_input_leaves_politely(monkeypatch, capsys):
    code, screen = play(monkeypatch, capsys, "B2\n", "ludic/TicTacToe-v0")
    assert code == 0
    assert screen.endswith("left before the end\n")


@pytest.mark.parametrize(
    ("name", "typed", "reason"),
    [
        ("Terminal", "done\n", "not as it must be: nothing was done"),
        ("HouseQuest", "look\n" * 80, "items in their places: 0"),
        ("PythonFunctions", "```python\ndef f():\n    return 1\n```\n", "tests passed: 0 of "),
    ],
)
def test_a_failure_says_why(monkeypatch, capsys, name, typed, reason):
    _, screen = play(monkeypatch, capsys, typed, f"ludic/{name}-v0", "--seed", "0")
    assert f"\n{reason}" in screen
    assert screen.endswith("reward 0\n")


def test_a_win_by_the_other_players_illegal_move_says_so():
    task = Task(env_id="ludic/TicTacToe-v0", seed=0)
    env = pettingzoo.make("aec", "ludic/TicTacToe-v0")
    you, other = env.possible_agents
    policies = {you: ScriptedPolicy(["B2"]), other: ScriptedPolicy(["55"])}
    said = farewell(*asyncio.run(run_match(env, policies, task)))
    assert said.endswith("\nthe move '55' of player_1 is not allowed\nwin\nreward 1")


class Count(AECEnv):
    """Three agents say their names in turn, twice; who says another has lost."""

    metadata: ClassVar = {"name": "count", "render_modes": []}

    def __init__(self):
        self.possible_agents = ["ann", "bob", "cy"]

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.said = []
        self.agent_selection = "ann"
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict(self.rewards)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {"system_prompt": f"You are {agent}."} for agent in self.agents}

    def observe(self, agent):
        return f"said: {' '.join(self.said) or 'nothing'}"

    def legal_actions(self):
        return (self.agent_selection,)

    def step(self, action):
        if action is None:
            self.agents.remove(self.agent_selection)
        else:
            self.said.append(action)
        if len(self.said) == 6:
            self.terminations = dict.fromkeys(self.possible_agents, True)
        names = self.possible_agents
        self.agent_selection = names[(names.index(self.agent_selection) + 1) % 3]


class AtOnce(ParallelEnv):
    """Two agents say anything, once."""

    metadata: ClassVar = {"name": "at_once", "render_modes": []}

    def __init__(self):
        self.possible_agents = ["left", "right"]

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return dict.fromkeys(self.agents, "speak"), {agent: {} for agent in self.agents}

    def action_space(self, agent):
        return TEXT

    def step(self, actions):
        seen = dict.fromkeys(self.agents, f"left said {actions['left']}")
        over, self.agents = dict.fromkeys(self.agents, True), []
        no = dict.fromkeys(seen, False)
        return seen, dict.fromkeys(seen, 1.0), over, no, {agent: {} for agent in seen}


@pytest.fixture
def several():
    pettingzoo.register("aec", "several/Count-v0", f"{__name__}:Count")
    pettingzoo.register("parallel", "several/AtOnce-v0", f"{__name__}:AtOnce")
    yield
    del pettingzoo.aec_registry["several/Count-v0"]
    del pettingzoo.parallel_registry["several/AtOnce-v0"]


@pytest.mark.parametrize("seat", ["second", "bob"])
def test_any_number_of_agents_have_a_seat_each_by_place_or_name(monkeypatch, capsys, several, seat):
    code, screen = play(monkeypatch, capsys, "bob\nbob\n", "several/Count-v0", "--seat", seat)
    assert code == 0
    assert "You are bob." in screen
    assert "said: ann\n> " in screen
    assert "said: ann bob cy ann\n> " in screen


def test_an_unknown_seat_is_refused_with_the_choices(monkeypatch, capsys, several):
    code, screen = play(monkeypatch, capsys, "", "several/Count-v0", "--seat", "fourth")
    assert code == 2
    assert screen == ("ludic: no seat 'fourth'; there are: first, second, third, ann, bob, cy\n")


@pytest.fixture
def my_model(tmp_path, monkeypatch):
    """Something to play against that answers every observation with the same line."""
    (tmp_path / "my_model.py").write_text(
        "from ludic_gym import ScriptedClient\n"
        "from ludic_gym import ChatPolicy\n"
        "def make(env):\n"
        "    return ChatPolicy(ScriptedClient(['\\x1b[2JI resign']))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_model:make"
    sys.modules.pop("my_model", None)


def test_a_game_with_joint_actions_only_can_be_played(monkeypatch, capsys, several, my_model):
    arguments = ("several/AtOnce-v0", "--seat", "left", "--against", my_model)
    code, screen = play(monkeypatch, capsys, "hello\n", *arguments)
    assert code == 0
    assert screen.endswith("left said hello\nended\nreward 1\n")


def test_the_episode_is_saved_with_all_its_rollouts(monkeypatch, capsys, tmp_path, several):
    path = tmp_path / "games.jsonl"
    for _ in range(2):
        arguments = ("several/Count-v0", "--seed", "3", "--save", str(path))
        _, screen = play(monkeypatch, capsys, "ann\nann\n", *arguments)
        assert screen.endswith(f"saved to {path}\n")
    episodes = list(read_episodes(path))
    assert len(episodes) == 2
    assert [rollout.agent for rollout in episodes[0].rollouts] == ["ann", "bob", "cy"]
    assert [step.decision.action for step in episodes[0].rollouts[2].steps] == ["cy", "cy"]
    assert episodes[0].task.seed == 3


def test_a_model_plays_the_other_seats(monkeypatch, capsys, my_model):
    arguments = ("ludic/TicTacToe-v0", "--against", my_model)
    _, screen = play(monkeypatch, capsys, "B2\n", *arguments)
    said = "the move '\\x1b[2JI resign' of player_1 is not allowed"
    assert screen.endswith(f"{said}\nwin\nreward 1\n")


class Rude(TextEnv):
    """Tries to clear the screen."""

    def start(self, options):
        return "\x1b[2Jhello", "\x07"

    def turn(self, action):
        return end(action, success=True, said=1.0)


class Blocking(Rude):
    metadata: ClassVar = Rude.metadata | {"blocking": True}


def by_hand(env, **arguments):
    shown = []
    rollout = played(env, read=lambda: "hi\x1b", write=shown.append, **arguments)
    return rollout, shown


@pytest.mark.parametrize("env", [Rude(), Blocking()])
def test_play_gives_the_rollout_and_shows_nothing_that_steers_a_terminal(env):
    rollout, shown = by_hand(env, seed=3)
    assert shown == ["\n␇", "\n␛[2Jhello"]
    assert (rollout.steps[0].decision.action, rollout.total_reward) == ("hi\x1b", 1.0)
    assert (rollout.task.env_id, rollout.task.seed) == (type(env).__name__, 3)


async def test_play_works_inside_a_running_event_loop():
    assert by_hand(Rude())[0].final_observation == "hi\x1b"


def test_play_asks_again_for_what_is_not_legal():
    typed, shown = iter(["Z9", *(f"{r}{c}" for r in "ABC" for c in "123"), *["A1"] * 99]), []
    env = TurnLimit(gym.make("ludic/TicTacToe-v0"), 2)
    rollout = played(env, read=lambda: next(typed), write=shown.append, seed=0)
    assert "'Z9' is not legal; choose from: A1, A2, A3, B1, B2, B3, C1, C2, C3" in shown
    assert len(rollout.steps) == 2
    assert rollout.steps[-1].truncated


def test_an_env_can_be_asked_to_be_played(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("80\n"))
    env = gym.make("ludic/Arithmetic-v0")
    rollout = env.unwrapped.play(seed=0)
    assert "How many pens" in capsys.readouterr().out
    assert rollout.steps[0].decision.action == "80"


def test_a_game_reads_sentences_and_lists_few_of_many_actions(monkeypatch, capsys):
    code, screen = play(
        monkeypatch, capsys, "hm\nI bid three fives!\n", "ludic/LiarsDice-v0", "--seed", "3"
    )
    assert code == 0
    assert "bid 2 sixes, ... (54 in all)" in screen
    assert "'I bid three fives!' is not legal" not in screen


def test_a_long_line_and_the_last_one_again_can_be_typed_at_a_terminal():
    parent, child = pty.openpty()
    words = [sys.executable, "-m", "ludic_gym", "play", "ludic/Hangman-v0", "--seed", "0"]
    program = subprocess.Popen(words, stdin=child, stdout=child, stderr=subprocess.DEVNULL)
    os.close(child)
    # A line of 5,000 letters, which a terminal without line editing cuts; then the arrow upwards.
    typed = [b"e" * 5000 + b"\n", b"\x1b[A\n", b"\x04"]
    shown = b""
    # Without an editor of lines, the program waits for the end of a line that was cut.
    while select.select([parent], [], [], 60)[0]:
        try:
            shown += os.read(parent, 65536)
        except OSError:
            break
        if typed and shown.count(b"> ") > 3 - len(typed):
            os.write(parent, typed.pop(0))
    os.close(parent)
    program.terminate()
    assert program.wait() == 0
    assert shown.count(b"'" + b"e" * 5000 + b"' is not legal") == 2
