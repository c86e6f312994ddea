import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.bench.tournament import PlayedGame, bradley_terry
from ludic_gym.errors import ConfigError


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


def test_who_always_wins_is_rated_high_but_not_infinitely():
    strong, _ = bradley_terry([PlayedGame("a", "b", 1.0)] * 20)
    assert 200 < strong.elo < 1000
    assert strong.interval.low > 0


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


@pytest.mark.parametrize(
    "game", [PlayedGame("a", "a", 1.0), PlayedGame("a", "b", 2.0), PlayedGame("a", "b", -1.0)]
)
def test_what_is_no_game_is_refused(game):
    with pytest.raises(ConfigError, match="no game between two players"):
        bradley_terry([game])


def test_ratings_need_two_players_and_a_prior():
    with pytest.raises(ConfigError, match=r"at least 2 players, got \[\]"):
        bradley_terry([])
    with pytest.raises(ConfigError, match="positive number of draws, got 0"):
        bradley_terry([PlayedGame("a", "b", 1.0)], prior=0)
