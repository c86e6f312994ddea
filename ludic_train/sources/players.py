"""Playing tasks over and over: alone in an environment, or as matches of several agents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ludic_gym.rollout.episodes import (
    MakePlayer,
    Seating,
    View,
    env_pool,
    match_pool,
    rotating_seats,
    run_episodes,
    run_matches,
)
from ludic_gym.types import Episode, MakePolicy, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Settings of matches in PettingZoo environments.

    players: one policy for every agent (self-play), or policies by the name of the player.
    learners: players whose rollouts are learned from; None for all of them.
    view: the environment's interface, agents in turn ("aec") or all at once ("parallel").
    seating: from players to agents, for each game.
    """

    players: MakePlayer | Mapping[str, MakePlayer]
    learners: Collection[str] | None = None
    view: View = "aec"
    seating: Seating = rotating_seats


class TaskPlayer:
    """Plays tasks in environments that are kept from call to call."""

    def __init__(
        self, play: MakePolicy | Matches, *, concurrency: int, timeout_s: float | None = None
    ) -> None:
        self._play, self._concurrency, self._timeout_s = play, concurrency, timeout_s
        # Making an env and checking its first steps costs as much as several short episodes.
        self._envs = env_pool(max_idle=concurrency)
        view: View = play.view if isinstance(play, Matches) else "aec"
        self._match_envs = match_pool(view, max_idle=concurrency)
        self._games = 0

    async def episodes(self, tasks: Sequence[Task]) -> list[Episode]:
        """Episodes of the tasks, in the order of the tasks, with the rollouts of learners."""
        running = self._running(tasks)
        # Before they are played: of several calls at once, each has other seats.
        self._games += len({task.group for task in tasks})
        ended = [self._of_learners(episode) async for episode in running]
        return sorted(ended, key=lambda episode: episode.index)

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()
        self._match_envs.close()

    def _running(self, tasks: Sequence[Task]) -> AsyncGenerator[Episode, None]:
        if not isinstance(self._play, Matches):
            return run_episodes(
                tasks,
                self._play,
                concurrency=self._concurrency,
                timeout_s=self._timeout_s,
                envs=self._envs,
            )
        return run_matches(
            tasks,
            self._play.players,
            view=self._play.view,
            seating=self._play.seating,
            first_game=self._games,
            concurrency=self._concurrency,
            timeout_s=self._timeout_s,
            envs=self._match_envs,
        )

    def _of_learners(self, episode: Episode) -> Episode:
        learners = self._play.learners if isinstance(self._play, Matches) else None
        if learners is None:
            return episode
        kept = tuple(rollout for rollout in episode.rollouts if rollout.player in learners)
        return replace(episode, rollouts=kept)
