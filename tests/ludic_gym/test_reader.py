"""The reader of replies: the same action in every form in which models write it."""

import time

import gymnasium as gym
import pettingzoo
import pytest

import ludic_gym as lg
from ludic_gym.reader import one_of, read_reply

CELLS = tuple(row + column for row in "ABC" for column in "123")
FORMS = {
    "bare": "{}",
    "bold": "**{}**",
    "quoted": '"{}"',
    "period": "{}.",
    "upper case": "{}",
    "label": "Action: {}",
    "bold label": "**Action:** {}",
    "label above": "Final answer:\n{}",
    "sentence": "My move is {}.",
    "reason": "My move is **{}**, because nothing else is as good.",
    "tag": "<answer>{}</answer>",
    "other tag": "I think this is best. <move>{}</move>",
    "box": r"So \boxed{{{}}}",
    "text box": r"\boxed{{\text{{{}}}}}",
    "sentence before": "This looks best to me.\n\n{}",
    "paragraph before": "First I thought about it.\nThen I saw it. It is clear.\n\n**{}**",
    "explanation after": "{}\n\nNothing else comes near.\nIt wins soon.",
    "thought": "<think>One or two?\nHm.</think>\n{}",
    "thought and tag": "<think>Hm.</think> So: <answer>{}</answer>",
    "fence": "```\n{}\n```",
    "json": '{{"action": "{}"}}',
    "fenced json": 'Here it is.\n```json\n{{"thought": "good", "move": "{}"}}\n```',
}
SHORT_MOVES = [
    "TicTacToe", "ConnectFour", "KuhnPoker", "RockPaperScissors", "IteratedPrisonersDilemma",
    "LiarsDice", "Mastermind", "Hangman", "Wordle", "Minesweeper", "Game2048", "Maze", "Sokoban",
    "GuessTheNumber", "HouseQuest",
]  # fmt: skip


def read_cell(reply: str) -> lg.Reading:
    return read_reply(reply, one_of(CELLS), CELLS)


@pytest.mark.parametrize("name", SHORT_MOVES)
def test_an_action_earns_the_same_in_every_form(name):
    env = gym.make(f"ludic/{name}-v0").unwrapped
    for form in FORMS.values():
        env.reset(seed=3)
        twin = gym.make(f"ludic/{name}-v0").unwrapped
        twin.reset(seed=3)
        for _ in range(3):
            action = env.oracle_action()
            *result, info = env.step(form.format(action))
            *expected, bare = twin.step(action)
            assert result == expected, (form, action)
            assert {key: info[key] for key in bare} == bare
            if expected[2]:
                break


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_matches_read_the_same_forms(form):
    env = pettingzoo.make("aec", "ludic/TicTacToe-v0")
    env.reset(seed=1)
    env.step(form.format("b2"))
    assert "X" in env.observe("player_1").splitlines()[2]


@pytest.mark.parametrize(
    ("reply", "rule"),
    [
        ("B2 or C3", "ambiguous"),
        ("<answer>B2</answer><answer>C3</answer>", "ambiguous"),
        ("Action: B2\nAction: C3", "ambiguous"),
        ('{"a": "B2"} {"a": "C3"}', "ambiguous"),
        ("B2\nC3", "ambiguous"),
        ("Z9", "none"),
        ("", "none"),
        ("<think>B2", "none"),
        ("<think>It must be B2.</think>", "none"),
    ],
)
def test_no_action_and_two_actions_are_illegal(reply, rule):
    assert read_cell(reply) == lg.Reading("", rule)
    assert read_cell(reply).info["illegal"]


def test_a_named_action_that_is_illegal_is_not_replaced_by_another_one():
    assert not read_cell("B2 is taken, so <answer>Z9</answer>").found
    assert not read_cell(r"B2 is taken, so \boxed{Z9}").found
    assert not read_cell("B2 is taken.\n**My final move: Z9**").found
    assert read_cell("Action: the best cell is left.\nB2").action == "B2"


def test_a_marked_action_counts_before_those_of_the_reasoning():
    assert read_cell("A1 and C3 are worse.\nA1\nMy move: B2").action == "B2"


@pytest.mark.parametrize("piece", ["<a>", "{", "action: ", "`", "** ", "B2 ", " ", "\\boxed{", "x"])
def test_a_megabyte_is_read_in_linear_time(piece):
    start = time.process_time()
    read_cell(piece * (10**6 // len(piece)))
    assert time.process_time() - start < 1


def test_an_environment_of_a_user_is_read_by_its_legal_actions():
    class Coin(lg.TextEnv):
        def start(self, options):
            return "Heads or tails?", "Guess."

        def turn(self, action):
            return lg.end(success=action == "heads")

        def allowed_actions(self):
            return "heads", "tails"

    env = Coin()
    env.reset(seed=1)
    _, reward, _, _, info = env.step("I am sure.\n\nAction: Heads")
    assert (reward, info["action"], info["rule"]) == (1.0, "heads", "label")
    env.reset(seed=1)
    assert env.step("Heads, or rather tails")[4]["illegal"]


def test_an_environment_of_a_user_is_read_by_its_pattern():
    class Digits(lg.TextEnv):
        action_pattern = r"\d{3}"

        def start(self, options):
            return "Three digits?", "Guess."

        def turn(self, action):
            return lg.end(success=action == "123")

    env = Digits()
    env.reset(seed=1)
    assert env.step("The code is long.\n**123**")[1] == 1.0
