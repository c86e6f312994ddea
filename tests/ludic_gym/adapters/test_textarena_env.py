import copy
import pickle
import random
import re
from functools import partial
from importlib.util import find_spec

import gymnasium as gym
import pettingzoo
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from envs_registry.catalog import ADAPTERS, SKIPPED
from ludic_gym.adapters.textarena import Match, TextArenaAECEnv, TextArenaEnv
from ludic_gym.errors import ConfigError, EpisodeOver
from ludic_gym.testing.rules import RULES

pytestmark = [
    # Not imported here: every worker of a run collects this file, and few run its tests.
    pytest.mark.skipif(find_spec("textarena") is None, reason="needs the extra `adapters`"),
    # Advice of PettingZoo about texts.
    pytest.mark.filterwarnings(
        "ignore:Observation|Action space:UserWarning",
        "ignore:The old environment:DeprecationWarning",
    ),
]
# Game -> its number of players.
PLAYERS = {e.kwargs["game"]: 2 if e.aec else 1 for e in ADAPTERS if e.package == "textarena"}


@pytest.mark.parametrize(("rule", "check"), RULES, ids=[rule for rule, _ in RULES])
def test_a_one_player_game_keeps_the_contract(rule, check):
    check(partial(gym.make, "ludic/ta-Minesweeper-v0", disable_env_checker=True))


@pytest.mark.parametrize("game", ["TicTacToe-v0", "KuhnPoker-v0"])
def test_a_two_player_game_passes_pettingzoos_tests(game, capsys):
    from pettingzoo.test import api_test, seed_test

    api_test(pettingzoo.make("aec", f"ludic/ta-{game}"))
    seed_test(lambda: pettingzoo.make("aec", f"ludic/ta-{game}"))


def test_a_game_shows_only_what_is_new():
    env = gym.make("ludic/ta-GuessTheNumber-v0").unwrapped
    rules, _ = env.reset(seed=0)
    assert "between 1 and 20" in rules
    seen = [env.step("7")[0] for _ in range(3)]
    assert all("7" in text and len(text) < len(rules) for text in seen[:1])
    assert all(rules not in text for text in seen)


def test_brackets_are_added_where_textarena_adds_them():
    replies = []
    for action in ("7", "[7]", "<think>[3] or [7]?</think>\n7"):
        env = TextArenaEnv("GuessTheNumber-v0")
        env.reset(seed=0)
        replies.append(env.step(action)[1:4])
    assert replies[0] == replies[1] == replies[2]


def test_a_guess_wins_and_an_invalid_move_loses():
    env = TextArenaEnv("GuessTheNumber-v0")
    outcomes = set()
    for number in range(1, 21):
        env.reset(seed=3)
        _, reward, over, _, info = env.step(str(number))
        if over:
            outcomes.add((reward, info["success"], info["outcome"], info["reward/game"]))
    assert outcomes == {(1.0, True, "win", 1.0)}
    env.reset(seed=3)
    over = False
    while not over:
        _, reward, over, _, info = env.step("no number")
    assert (info["success"], info["outcome"]) == (False, "illegal")


def test_global_generators_neither_decide_nor_change():
    matches = []
    for seed in (1, 2):
        random.seed(seed)
        state = random.getstate()
        env = TextArenaEnv("Mastermind-v0")
        matches.append([env.reset(seed=5), env.step("[1 2 3 4]"), env.step("[4 3 2 1]")])
        assert random.getstate() == state
    assert matches[0] == matches[1]


def test_a_match_goes_on_drawing_where_it_left_off():
    match = Match("PigDice-v0", 2, seed=1)
    rolls = []
    for _ in range(12):
        mover = match.mover
        match.read(mover)
        match.play("[roll]")
        rolls += re.findall(r"'(\d)'\nAvailable", match.read(mover))
    # One die would fall the same every time if each turn began with the same generators.
    assert len(set(rolls)) >= 3


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_of_a_two_player_game_goes_on_like_the_original(twin_of):
    env = TextArenaAECEnv("TicTacToe-v0")
    env.reset(seed=0)
    env.step("[4]")
    twin = twin_of(env)
    for either in (env, twin):
        either.step("[0]")
    assert env.observe("player_0") == twin.observe("player_0")
    assert twin.observe("player_0") != ""


def test_two_players_take_turns_and_both_hear_the_end():
    env = TextArenaAECEnv("TicTacToe-v0")
    env.reset(seed=0)
    movers = []
    for cell in ("4", "0", "1", "3", "7"):
        movers.append(env.agent_selection)
        env.step(cell)
    assert movers == ["player_0", "player_1"] * 2 + ["player_0"]
    assert env.rewards == {"player_0": 1.0, "player_1": -1.0}
    assert all(env.terminations.values())
    ends = [env.infos[agent]["outcome"] for agent in env.possible_agents]
    assert ends == ["win", "loss"]
    with pytest.raises(EpisodeOver, match="the game is over for player_1"):
        env.step("8")
    for _ in range(2):
        env.step(None)
    assert env.agents == []


def test_a_game_that_breaks_is_over_and_costs_who_broke_it(monkeypatch):
    from textarena.envs.GuessTheNumber.env import GuessTheNumberEnv

    env = TextArenaEnv("GuessTheNumber-v0")
    env.reset(seed=0)
    monkeypatch.setattr(GuessTheNumberEnv, "step", lambda game, action: 1 / 0)
    _, reward, over, _, info = env.step("7")
    assert (reward, over, info["outcome"], info["success"]) == (-1.0, True, "broken", False)
    assert "Error: " in info["game_error"]


def test_a_game_that_there_is_not_is_refused_with_those_near_to_it():
    with pytest.raises(ConfigError, match=r"no game 'Mastermind-v9'; similar: Mastermind-v0, "):
        TextArenaEnv("Mastermind-v9")


def test_every_game_of_one_or_two_players_is_an_environment_or_has_a_reason_not_to_be():
    from textarena.envs.registration import ENV_REGISTRY

    listed = sorted([*PLAYERS, *(f"{game}-v0" for game in SKIPPED["textarena"])])
    assert listed == sorted(name for name in ENV_REGISTRY if name.endswith("-v0"))


@pytest.mark.parametrize("game", PLAYERS)
def test_every_game_begins_the_same_for_the_same_seed(game):
    first, again = (Match(game, PLAYERS[game], seed=7) for _ in range(2))
    assert first.read(0) == again.read(0) != ""
