from collections import Counter

import gymnasium as gym
import pettingzoo
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.tic_tac_toe import (
    TIC_TAC_TOE,
    legal_actions,
    play,
    returns,
)
from ludic_gym.errors import EnvError, EpisodeOver
from ludic_gym.spaces import TEXT

ID = "ludic/TicTacToe-v0"
EMPTY = "  1 2 3\nA . . .\nB . . .\nC . . ."
ONE_X = "  1 2 3\nA X . .\nB . . .\nC . . ."


def outcomes(act, seeds, **kwargs):
    """Number of episodes with each outcome, if `act(env)` plays."""
    env = gym.make(ID, **kwargs)
    counts = Counter()
    for seed in seeds:
        env.reset(seed=seed)
        done = False
        while not done:
            _, _, done, _, info = env.step(act(env.unwrapped))
        counts[info["outcome"]] += 1
    return counts


def oracle(env):
    return env.oracle_action()


def first_legal(env):
    return env.legal_actions()[0]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (".........", None),
        ("XXX.OO...", (1.0, -1.0)),
        ("OX.OX.O.X", (-1.0, 1.0)),
        ("XO.OX...X", (1.0, -1.0)),
        ("..O.OXOXX", (-1.0, 1.0)),
        ("XOXXOOOXX", (0.0, 0.0)),
        ("XOX.OOX..", None),
    ],
)
def test_three_in_a_line_win_and_a_full_board_is_a_draw(state, expected):
    assert returns(state) == expected


def test_there_are_5478_boards_and_perfect_play_draws():
    # The count of legal Tic-Tac-Toe positions, the empty and the finished boards included.
    boards, fresh = {"........."}, {"........."}
    while fresh:
        fresh = {
            play(board, action)
            for board in fresh
            if returns(board) is None
            for action in legal_actions(board)
        }
        boards |= fresh
    assert len(boards) == 5478
    board = "........."
    while returns(board) is None:
        board = play(board, TIC_TAC_TOE.best_actions(board)[0])
    assert returns(board) == (0.0, 0.0)


def test_the_board_has_a_dot_for_a_free_cell_and_the_prompt_says_the_seat():
    board, info = gym.make(ID).reset(seed=0)
    assert board == EMPTY
    assert "as X" in info["system_prompt"]
    board, info = gym.make(ID, seat="second").reset(seed=0)
    assert board.count("X") == 1
    assert "as O" in info["system_prompt"]


def test_a_game_against_perfect_play_step_by_step():
    # Two perfect players always draw.
    env = gym.make(ID, opponent="perfect", draw_reward=0.25)
    env.reset(seed=0)
    board, reward, terminated, truncated, info = env.step(" B2\n")
    assert board.splitlines()[2][4] == "X"
    assert board.count("O") == 1
    assert (reward, terminated, truncated, info) == (0.0, False, False, {})
    while not terminated:
        board, reward, terminated, _, info = env.step(env.unwrapped.oracle_action())
    assert reward == 0.25
    assert info == {"success": False, "outcome": "draw", "reward/outcome": 0.25}


@pytest.mark.parametrize(
    "action", ["5", "A0", "D1", "", "X", "A1 A2", "Ａ１", "\ud800", "A1" * 10**5]
)
def test_an_illegal_action_loses_at_once(action):
    env = gym.make(ID)
    board, _ = env.reset(seed=0)
    refusal = "That is not a legal action. Legal actions: A1, A2, A3, B1, B2, B3, C1, C2, C3."
    *result, info = env.step(action)
    assert result == [f"{refusal} The game is lost.\n{board}", -1.0, True, False]
    assert (info["success"], info["outcome"], info["illegal"]) == (False, "illegal", True)


@pytest.mark.parametrize("action", ["b2", " B2\n", "B 2", "\tb\n2"])
def test_case_and_white_space_do_not_matter(action):
    env = gym.make(ID)
    env.reset(seed=0)
    assert env.step(action)[0].splitlines()[2][4] == "X"
    pair = aec(action)
    assert pair.observe("player_1") == "  1 2 3\nA . . .\nB . X .\nC . . ."


def test_the_oracle_wins_nearly_always_against_random_and_never_loses():
    first = outcomes(oracle, range(500), opponent="random")
    assert first["win"] >= 475
    assert set(first) <= {"win", "draw"}
    second = outcomes(oracle, range(500), opponent="random", seat="second")
    assert set(second) <= {"win", "draw"}
    assert outcomes(oracle, range(200), opponent="perfect", seat="random") == {"draw": 200}


def test_a_mixed_opponent_is_random_half_of_the_time():
    # The first legal cell beats random play in most games and perfect play in none.
    beaten = outcomes(first_legal, range(400), opponent="random")["win"] / 400
    mixed = outcomes(first_legal, range(400), opponent="mixed")["win"] / 400
    assert outcomes(first_legal, range(100), opponent="perfect")["win"] == 0
    assert mixed == pytest.approx(beaten / 2, abs=0.09)
    # It is the default: a fixed order of cells beats random play.
    assert outcomes(first_legal, range(400))["win"] / 400 == mixed


def test_a_random_seat_is_the_first_one_half_of_the_time():
    env = gym.make(ID, seat="random")
    firsts = sum("as X" in env.reset(seed=seed)[1]["system_prompt"] for seed in range(400))
    assert 150 < firsts < 250


def aec(*actions):
    """The AEC game after the actions."""
    env = pettingzoo.make("aec", ID)
    env.reset(seed=0)
    for action in actions:
        env.step(action)
    return env


def test_two_agents_take_turns_and_each_sees_the_board_after_the_others_move():
    env = aec("A1", "B2")
    assert env.agent_selection == "player_0"
    observation, reward, terminated, truncated, info = env.last()
    assert observation == "  1 2 3\nA X . .\nB . O .\nC . . ."
    assert (reward, terminated, truncated, info) == (0.0, False, False, {})
    assert observation.dtype == TEXT.dtype


def test_the_winner_gets_one_and_the_loser_its_loss():
    env = aec("A1", "B1", "A2", "B2", "A3")
    ends = {}
    for agent in env.agent_iter():
        _, reward, terminated, _, info = env.last()
        ends[agent] = (reward, terminated, info["outcome"], info["success"], info["reward/outcome"])
        env.step(None)
    assert ends == {
        "player_0": (1.0, True, "win", True, 1.0),
        "player_1": (-1.0, True, "loss", False, -1.0),
    }


@pytest.mark.parametrize("moves", [("x",), ("A1", "A1"), ("A1", "A2", "\ud800")])
def test_an_illegal_action_loses_and_the_other_agent_wins(moves):
    env = aec(*moves)
    loser = f"player_{(len(moves) - 1) % 2}"
    winner = f"player_{len(moves) % 2}"
    assert env.rewards == {loser: -1.0, winner: 1.0}
    assert (env.infos[loser]["outcome"], env.infos[winner]["outcome"]) == ("illegal", "win")
    assert env.terminations == {loser: True, winner: True}


def test_order_is_kept_without_a_wrapper():
    env = pettingzoo.make("aec", ID)
    with pytest.raises(EpisodeOver, match="no game is running"):
        env.step("A1")
    env.reset()
    with pytest.raises(EnvError, match="player_0 is to move"):
        env.step(None)
    env.step("illegal")
    with pytest.raises(EpisodeOver, match=r"step\(None\)"):
        env.step("A1")
    env.step(None)
    env.step(None)
    with pytest.raises(EpisodeOver, match="no game is running"):
        env.observe("player_0")


def test_a_new_game_may_begin_while_agents_of_the_old_one_wait():
    env = aec("x")
    env.step(None)
    env.reset()
    env.step("A1")
    assert (env.agents, env.agent_selection) == (["player_0", "player_1"], "player_1")


def test_jointly_only_the_agent_to_move_is_heard():
    env = pettingzoo.make("parallel", ID)
    observations, infos = env.reset(seed=0)
    assert infos["player_1"]["active_agent"] == "player_0"
    assert observations["player_0"] == observations["player_1"] == EMPTY
    observations, rewards, ended, _, infos = env.step({"player_0": "A1", "player_1": "C3"})
    assert observations["player_1"] == ONE_X
    assert (rewards["player_1"], ended["player_1"]) == (0.0, False)
    assert infos == {agent: {"active_agent": "player_1"} for agent in ("player_0", "player_1")}


def test_a_joint_game_ends_for_both_and_then_refuses_steps():
    env = pettingzoo.make("parallel", ID)
    env.reset(seed=0)
    _, rewards, ended, _, infos = env.step({"player_0": "nonsense"})
    assert rewards == {"player_0": -1.0, "player_1": 1.0}
    assert ended == {"player_0": True, "player_1": True}
    assert infos["player_0"]["outcome"] == "illegal"
    assert env.agents == []
    with pytest.raises(EpisodeOver, match="no game is running"):
        env.step({})


def test_jointly_the_agent_to_move_must_act():
    env = pettingzoo.make("parallel", ID)
    env.reset(seed=0)
    with pytest.raises(EnvError, match=r"player_0 is to move, got actions of \['player_1'\]"):
        env.step({"player_1": "A1"})
