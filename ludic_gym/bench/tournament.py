"""Round robins: every pair of players plays the same games from both seats."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from itertools import combinations

from ludic_gym.bench.ratings import PlayedGame
from ludic_gym.errors import ConfigError
from ludic_gym.rollout.episodes import MakePlayer, run_matches
from ludic_gym.sampling import derived_seed
from ludic_gym.types import Episode, Rollout, Task


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
    # A stream per pair, because seats rotate within one stream.
    for pair in combinations(players, 2):
        matches = run_matches(
            _games(task, task.seed, games),
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


def _games(task: Task, seed: int, games: int) -> Iterator[Task]:
    for i in range(games):
        sampling = replace(task.sampling, seed=derived_seed(seed, i))
        # Twice, because the seats rotate from one task to the next.
        yield from [replace(task, seed=seed + i, sampling=sampling)] * 2
