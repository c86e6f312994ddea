import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.bench.tournament import PlayedGame, bradley_terry, game_of, round_robin
from ludic_gym.errors import ConfigError
from ludic_gym.parsers import regex_parser
from ludic_gym.policies.reference import OraclePolicy, RandomPolicy, ScriptedPolicy
from ludic_gym.policies.wrappers import Parsed
from ludic_gym.types import Decision, Episode, Rollout, Step, Task

TASK = Task(env_id="ludic/TicTacToe-v0", seed=5)
PLAYERS = {"random": RandomPolicy, "oracle": OraclePolicy, "other": RandomPolicy}


async def games(players=PLAYERS, task=TASK, **changes):
    return [e async for e in round_robin(players, task, **{"games": 3, **changes})]


async def test_every_two_play_the_same_games_from_both_seats():
    episodes = await games()
    assert len(episodes) == 3 * 2 * 3
    played = sorted((game_of(e)[:2], e.task.seed) for e in episodes)
    seats = [(a, b) for a in sorted(PLAYERS) for b in sorted(PLAYERS) if a != b]
    assert played == sorted((seat, seed) for seat in seats for seed in (5, 6, 7))
    of_a_game = {e.task.sampling.seed for e in episodes if e.task.seed == 6}
    assert len(of_a_game) == 1


async def test_games_are_the_same_again_at_any_concurrency():
    one, many = [sorted(map(game_of, await games(concurrency=c))) for c in (1, 64)]
    assert one == many


async def test_a_game_that_fails_is_told_and_the_others_go_on():
    players = {"random": RandomPolicy, "silent": lambda env: ScriptedPolicy([])}
    episodes = await games(players)
    assert len(episodes) == 6
    assert all("scripted actions" in episode.error for episode in episodes)
    with pytest.raises(ConfigError, match="no finished game"):
        game_of(episodes[0])


@pytest.mark.parametrize(("mine", "yours", "result"), [(1, -1, 1.0), (0, 0, 0.5), (-1, 1, 0.0)])
def test_who_has_more_reward_won(mine, yours, result):
    def rollout(agent, player, reward):
        steps = (Step(observation="", decision=Decision(action="x"), reward=reward),)
        return Rollout(task=TASK, steps=steps, agent=agent, player=player)

    both = (rollout("player_1", "you", yours), rollout("player_0", "me", mine))
    assert game_of(Episode(index=0, task=TASK, rollouts=both)) == ("me", "you", result)


async def test_rewards_of_parsers_decide_no_game():
    def parsed(env):
        # A reward of 0.1 for each action: in a draw of Tic-Tac-Toe, the first player has five.
        return Parsed(OraclePolicy(env), regex_parser(r"\w+", success_reward=0.1))

    results = [game_of(e).result for e in await games({"a": parsed, "b": parsed})]
    assert results == [0.5] * 6


async def test_a_tournament_needs_players_games_and_seeds():
    with pytest.raises(ConfigError, match=r"at least 2 players, got \['a'\]"):
        await games({"a": RandomPolicy})
    with pytest.raises(ConfigError, match="games is at least 1, got 0"):
        await games(games=0)
    with pytest.raises(ConfigError, match="give the task a seed"):
        await games(task=Task(env_id="ludic/TicTacToe-v0"))


def simulated(strengths, rounds, seed):
    """A round robin with seats swapped, by players of these Elo strengths."""

    def gap(a, b):
        return strengths[b] - strengths[a]

    rng = np.random.default_rng(seed)
    return [
        PlayedGame(a, b, float(rng.random() < 1 / (1 + 10 ** (gap(a, b) / 400))))
        for _ in range(rounds)
        for a in strengths
        for b in strengths
        if a != b
    ]


def test_two_players_odds_are_the_share_of_points():
    # Without a prior 75 of 100 points are odds of 3: 400 log10(3) = 190.85; 1e-9 draws change that
    # by nothing that shows.
    games = [PlayedGame("a", "b", 1.0)] * 75 + [PlayedGame("b", "a", 1.0)] * 25
    strong, weak = bradley_terry(games, prior=1e-9)
    assert (strong.player, weak.player) == ("a", "b")
    assert strong.elo - weak.elo == pytest.approx(400 * math.log10(3), abs=1e-3)
    assert strong.elo == pytest.approx(-weak.elo)
    assert (strong.games, strong.points, weak.points) == (100, 75.0, 25.0)


def test_the_interval_of_two_players_is_the_binomials():
    # The log-odds have variance 1 / (n p (1 - p)) = 1/18.75; each rating is half their difference.
    games = [PlayedGame("a", "b", 1.0)] * 75 + [PlayedGame("b", "a", 1.0)] * 25
    strong, _ = bradley_terry(games, prior=1e-9)
    half = 1.959964 * 400 / math.log(10) / 2 / math.sqrt(18.75)
    assert strong.interval == pytest.approx((strong.elo - half, strong.elo + half), abs=1e-2)


def test_known_strengths_are_recovered_within_their_intervals():
    strengths = {"a": 300.0, "b": 100.0, "c": -50.0, "d": -350.0}
    inside = 0
    for seed in range(50):
        for rating in bradley_terry(simulated(strengths, rounds=40, seed=seed)):
            low, high = rating.interval
            inside += low <= strengths[rating.player] <= high
    # 95% of 200 is 190, with a standard deviation of about 3 to 4 as the four hang together.
    assert inside >= 178


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=30))
def test_who_sits_first_makes_no_difference(results):
    games = [PlayedGame("a", "b", result) for result in results]
    swapped = [PlayedGame("b", "a", 1.0 - result) for result in results]
    ratings, again = bradley_terry(games), bradley_terry(swapped)
    assert [r.elo for r in ratings] == pytest.approx([r.elo for r in again])


def test_ratings_need_two_players_and_a_prior():
    with pytest.raises(ConfigError, match=r"at least 2 players, got \[\]"):
        bradley_terry([])
    with pytest.raises(ConfigError, match="positive number of draws, got 0"):
        bradley_terry([PlayedGame("a", "b", 1.0)], prior=0)
