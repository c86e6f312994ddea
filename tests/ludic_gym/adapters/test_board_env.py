import copy
import pickle
import random
from functools import partial

import gymnasium as gym
import pettingzoo
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.adapters.board_env import BOARDS, BoardAECEnv, BoardEnv
from ludic_gym.errors import ConfigError
from ludic_gym.testing.rules import RULES

pytest.importorskip("pygame", reason="needs the extra `boards`")
games = pytest.mark.parametrize("game", sorted(BOARDS))


def played(game, *moves):
    """The game after the moves."""
    env = BoardAECEnv(game)
    env.reset(seed=0)
    for move in moves:
        env.step(move)
    return env


def ends(env):
    return [env.infos[agent].get("outcome") for agent in env.possible_agents]


@pytest.mark.filterwarnings(
    "ignore:Observation|Action space:UserWarning", "ignore:The old environment:DeprecationWarning"
)
@games
def test_a_board_game_passes_pettingzoos_tests(game, capsys):
    from pettingzoo.test import api_test, seed_test

    api_test(pettingzoo.make("aec", f"ludic/pz-{game}-v0"))
    seed_test(lambda: pettingzoo.make("aec", f"ludic/pz-{game}-v0"))


def test_chess_moves_are_written_for_both_sides_from_whites_view():
    env = played("chess", "e2e4")
    assert "e7e5" in env.legal_actions()
    assert env.observe("player_1").endswith(
        "FEN: rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
    )
    # The fool's mate.
    assert ends(played("chess", "f2f3", "e7e5", "g2g4", "D8H4 ")) == ["loss", "win"]


def test_go_points_are_named_as_on_a_board_and_stones_are_taken():
    env = played("go", "B9", "A9", "A8")
    top, second, *_, columns = env.observe("player_1").splitlines()
    # White's stone in the corner had no liberty left.
    assert (top, second) == ("9 . X . . . . . . .", "8 X . . . . . . . .")
    assert columns == "  A B C D E F G H J"
    assert "A9" not in env.legal_actions()


def test_two_passes_end_a_game_of_go_and_komi_decides_an_empty_board():
    assert ends(played("go", "pass", "PASS")) == ["loss", "win"]


@games
@pytest.mark.parametrize("action", ["", "?", "10\n11", "\ud800", "x" * 100_000])
def test_a_move_that_is_not_legal_loses(game, action):
    env = played(game, action)
    assert ends(env) == ["illegal", "win"]
    assert list(env.rewards.values()) == [-1.0, 1.0]


@games
@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_like_the_original_and_alone(game, twin_of):
    env = played(game)
    for _ in range(4):
        env.step(random.Random(0).choice(env.legal_actions()))
    before = env.legal_actions()
    twin = twin_of(env)
    assert twin.legal_actions() == before
    twin.step(before[0])
    assert env.legal_actions() == before
    env.step(before[0])
    assert env.observe(env.agent_selection) == twin.observe(twin.agent_selection)


@games
def test_the_prompt_names_the_side_and_legal_moves_go_on_to_an_end(game):
    env = played(game)
    sides = [env.infos[agent]["system_prompt"].split(";")[0] for agent in env.possible_agents]
    assert sides[0] != sides[1]
    rng = random.Random(1)
    for _ in range(3000):
        if any(env.terminations.values()):
            break
        env.step(rng.choice(env.legal_actions()))
    assert "illegal" not in ends(env)
    assert env.legal_actions() == ()


def test_a_game_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match="game is one of chess, go"):
        BoardAECEnv("checkers")


def test_a_pawn_becomes_the_piece_that_is_named():
    # White's pawn takes its way down the a-file and the rook on b8's neighbour.
    env = played("chess", "a2a4", "b7b5", "a4b5", "a7a6", "b5a6", "c8b7", "a6b7", "h7h6")
    assert {"b7a8q", "b7a8n"} <= set(env.legal_actions())
    env.step("b7a8n")
    assert env.observe("player_1").startswith("8 N n . q")


@games
@pytest.mark.parametrize(("rule", "check"), RULES, ids=[rule for rule, _ in RULES])
def test_the_view_of_one_player_keeps_the_contract(game, rule, check):
    check(partial(gym.make, f"ludic/pz-{game}-v0", disable_env_checker=True))


def test_the_opponent_answers_at_once_and_the_second_seat_sees_the_opening():
    env = BoardEnv("go")
    empty, _ = env.reset(seed=0)
    assert (empty.count("X"), empty.count("O")) == (0, 0)
    text, *_ = env.step("D4")
    assert (text.count("X"), text.count("O")) == (1, 1)
    opened, info = BoardEnv("go", seat="second").reset(seed=0)
    assert (opened.count("X"), opened.count("O")) == (1, 0)
    assert "as White" in info["system_prompt"] or "as O" in info["system_prompt"]
