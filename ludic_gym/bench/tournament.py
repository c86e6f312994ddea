"""Tournaments: every pair of players plays the same games from both seats, for ratings."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from ludic_gym.bench.statistics import Interval, normal_quantile
from ludic_gym.errors import ConfigError
from ludic_gym.rollout.episodes import MakePlayer, run_matches
from ludic_gym.sampling import derived_seed
from ludic_gym.types import Episode, Rollout, Task

ELO_PER_NAT = 400 / math.log(10)
_MOST_STEPS = 100


async def round_robin(
    players: Mapping[str, MakePlayer],
    task: Task,
    *,
    games: int = 20,
    concurrency: int = 64,
    timeout_s: float | None = None,
) -> AsyncIterator[Episode]:
    """The games of all pairs, pair by pair, in order of completion; failed ones have an error.

    task: the first game; game i has env seed task.seed + i, and sampling seeds derived from it.
    games: pairs of games with swapped seats, for every pair of players.
    concurrency, timeout_s: as in `run_matches`.
    Raises ConfigError for fewer than two players, one game or one turn, and for a task without a
    seed that environments take.
    """
    if len(players) < 2:
        raise ConfigError(f"a tournament needs at least 2 players, got {list(players)}")
    if task.seed is None:
        raise ConfigError("both seats play the same games: give the task a seed")
    least = (("games", games, 1), ("seed", task.seed, 0), ("max_turns", task.max_turns, 1))
    for name, value, low in least:
        if value < low:
            raise ConfigError(f"{name} is at least {low}, got {value}")
    tasks = []
    for i in range(games):
        sampling = replace(task.sampling, seed=derived_seed(task.seed, i))
        # Twice, because the seats rotate from one task to the next.
        tasks += [replace(task, seed=task.seed + i, sampling=sampling)] * 2
    # A stream per pair, because seats rotate within one stream.
    for pair in combinations(players, 2):
        matches = run_matches(
            tasks,
            {name: players[name] for name in pair},
            concurrency=concurrency,
            timeout_s=timeout_s,
        )
        async with aclosing(matches) as episodes:
            async for episode in episodes:
                yield episode


def game_of(episode: Episode) -> PlayedGame:
    """The players of a finished game and its result: more reward wins, equal rewards are a draw.

    Rewards are those of the game, without those of the players' parsers. The first player is that
    of the env's first agent.
    Raises ConfigError for an episode that is no finished game of two.
    """
    if episode.error is not None or len(episode.rollouts) != 2:
        raise ConfigError(f"episode {episode.index} is no finished game of two players")
    # By agent, because rollouts are in the order of the policies, and the first agent moves first.
    first, second = sorted(episode.rollouts, key=lambda rollout: rollout.agent)
    # Wins and not rewards: the scale of rewards differs between games, and ratings are of odds.
    gap = round(_game_reward(first) - _game_reward(second), 9)
    return PlayedGame(first.player, second.player, 0.5 if gap == 0 else float(gap > 0))


def _game_reward(rollout: Rollout) -> float:
    # A reward of each turn for its format would let the player with more turns win a draw.
    return sum(step.reward - step.decision.reward for step in rollout.steps)


class PlayedGame(NamedTuple):
    """One game of two players.

    first, second: names of the players, in the order of their seats.
    result: points of the first player: 1 for a win, 0.5 for a draw, 0 for a loss.
    """

    first: str
    second: str
    result: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """A player's strength. 400 points more mean odds of ten to one; the mean over players is 0.

    interval: of `elo`, 95%. games: number of the player's games. points: sum of its results.
    """

    player: str
    elo: float
    interval: Interval
    games: int
    points: float


def bradley_terry(games: Sequence[PlayedGame], *, prior: float = 1.0) -> tuple[Rating, ...]:
    """The players' ratings, the strongest first (Bradley and Terry 1952, Biometrika 39, 324-345).

    A draw counts as half a win for both. prior: every player gets this many draws against a player
    of rating 0. Without it, a player who always won would have an infinite rating.
    The intervals are normal, 95%, from the curvature of the likelihood.
    Raises ConfigError for fewer than two players, a player against itself, or a result outside
    [0, 1].

    >>> games = [PlayedGame("a", "b", 1.0)] * 3 + [PlayedGame("b", "a", 1.0)]
    >>> [(rating.player, round(rating.elo), rating.points) for rating in bradley_terry(games)]
    [('a', 82, 3.0), ('b', -82, 1.0)]
    """
    for game in games:
        if game.first == game.second or not 0.0 <= game.result <= 1.0:
            raise ConfigError(f"{game} is no game between two players with a result in [0, 1]")
    if prior <= 0:
        raise ConfigError(f"prior is a positive number of draws, got {prior}")
    players = sorted({name for game in games for name in (game.first, game.second)})
    if len(players) < 2:
        raise ConfigError(f"ratings need at least 2 players, got {players}")
    # [P, P]: the points that the row's player took from the column's.
    points, where = np.zeros((len(players), len(players))), {p: i for i, p in enumerate(players)}
    for game in games:
        points[where[game.first], where[game.second]] += game.result
        points[where[game.second], where[game.first]] += 1.0 - game.result
    strengths, covariance = _fitted(points, prior)
    # The likelihood knows strengths up to a constant only. Their mean is set to 0, and the
    # covariance is that of the differences from the mean.
    centred = np.eye(len(players)) - 1 / len(players)
    spread = np.sqrt(np.diag(centred @ covariance @ centred))
    half = normal_quantile(0.95) * ELO_PER_NAT * spread
    elo = ELO_PER_NAT * (strengths - strengths.mean())
    rated = [
        Rating(
            player=player,
            elo=float(elo[i]),
            interval=Interval(float(elo[i] - half[i]), float(elo[i] + half[i])),
            games=round(points[i].sum() + points[:, i].sum()),
            points=float(points[i].sum()),
        )
        for i, player in enumerate(players)
    ]
    return tuple(sorted(rated, key=lambda rating: -rating.elo))


def _fitted(points: np.ndarray, prior: float) -> tuple[np.ndarray, np.ndarray]:
    """The most likely strengths in nats, [P], and their covariance, [P, P]; by Newton's method."""
    # The likelihood is concave, so that any start leads to its one maximum.
    strengths = np.zeros(len(points))
    played = points + points.T
    for _ in range(_MOST_STEPS):
        expected = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
        # The prior is one more player of strength 0, with `prior` draws against each. It also makes
        # the curvature invertible, which is singular under a common shift of all strengths.
        against_prior = 1 / (1 + np.exp(-strengths))
        slope = (points - played * expected).sum(axis=1) + prior * (0.5 - against_prior)
        weights = played * expected * (1 - expected)
        curvature = (
            np.diag(weights.sum(axis=1) + prior * against_prior * (1 - against_prior)) - weights
        )
        step = np.linalg.solve(curvature, slope)
        # Far from the maximum the likelihood is flat and Newton's step too long: cut it to a nat.
        strengths = strengths + step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-10:
            break
    return strengths, np.linalg.inv(curvature)


def ratings_table(ratings: Sequence[Rating], games: Sequence[PlayedGame]) -> list[tuple[str, ...]]:
    """The headings, then a row per player with its points against each other player.

    ratings: in the order of the rows. games: those that the ratings are from.

    >>> games = [PlayedGame("a", "b", 1.0), PlayedGame("b", "a", 0.5)]
    >>> ratings_table(bradley_terry(games), games)[1][-2:]
    ('', '1.5/2')
    """

    def points(player: str, other: str) -> str:
        # A result is the first player's share of one point; the rest is the second player's.
        won = [game.result for game in games if game[:2] == (player, other)]
        lost = [game.result for game in games if game[:2] == (other, player)]
        total = f"{sum(won) + len(lost) - sum(lost):g}/{len(won) + len(lost)}"
        return "" if player == other else total

    names = [rating.player for rating in ratings]
    return [
        ("player", "Elo", "95%", "points", "games", *(f"v {name}" for name in names)),
        *(
            (
                rating.player,
                f"{rating.elo:+.0f}",
                f"{rating.interval:+.0f}",
                f"{rating.points:g}",
                str(rating.games),
                *(points(rating.player, name) for name in names),
            )
            for rating in ratings
        ),
    ]
