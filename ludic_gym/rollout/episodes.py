"""run_episodes and run_matches: episodes for an iterator of tasks."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Literal

import gymnasium as gym
import pettingzoo

from ludic_gym.errors import ConfigError, EpisodeError
from ludic_gym.making import make_env
from ludic_gym.rollout.episode import run_episode
from ludic_gym.rollout.match import JointEnv, TurnEnv, run_match
from ludic_gym.rollout.outcome import blame_reported
from ludic_gym.rollout.pool import QUICK, EnvPool, aclose, awaitable_env, is_made_on_loop
from ludic_gym.rollout.stream import EpisodeStream, Play
from ludic_gym.types import Env, Episode, MakePolicy, Policy, Rollout, Task

MatchEnv = TurnEnv | JointEnv
MakePlayer = Callable[[MatchEnv], Policy]
View = Literal["aec", "parallel"]
# (players, agents of the env, number of the game) -> the player of each agent.
Seating = Callable[[Sequence[str], Sequence[str], int], Mapping[str, str]]


def run_episodes(
    tasks: Iterable[Task | tuple[Task, MakePolicy]],
    make_policy: MakePolicy,
    *,
    concurrency: int = 64,
    timeout_s: float | None = None,
    envs: EnvPool[Env] | None = None,
) -> AsyncGenerator[Episode, None]:
    """Play every task once; the episodes in order of completion.

    tasks: may be endless, and is read only as episodes start: at most `concurrency` run or have
        just ended, and up to 64 wait for the caller. A task with a MakePolicy is played by that
        policy.
    make_policy: called for every episode, with its env. Envs are made once per env_id and kwargs
        and used again.
    timeout_s: seconds after which an episode fails; making its env may take as long. A call of the
        env that does not return is left behind on its thread, which ends with the program.
    envs: an `env_pool` to play in, which stays open; without it, envs are closed at the end.
    An episode that raises, takes too long, or is truncated by the env with an info["error"] is
    returned with its error. It leaves no task running, and its env is not used again. An error in
    `tasks` itself ends the stream. Closing the generator cancels all running episodes and waits for
    them.

    >>> import asyncio
    >>> from ludic_gym import OraclePolicy
    >>> async def total_reward() -> float:
    ...     tasks = [Task(env_id="ludic/Arithmetic-v0", seed=seed) for seed in range(8)]
    ...     episodes = run_episodes(tasks, OraclePolicy, concurrency=4)
    ...     return sum([episode.rollouts[0].total_reward async for episode in episodes])
    >>> asyncio.run(total_reward())
    8.0
    """

    def jobs() -> Iterator[tuple[Task, Play[Env]]]:
        # One at a time: a wrong item ends the stream after the episodes of those before it.
        for item in tasks:
            task, make = item if isinstance(item, tuple) and len(item) == 2 else (item, make_policy)
            if not isinstance(task, Task):
                raise ConfigError(
                    f"tasks holds {item!r}; it takes a Task, or a pair of a Task and a MakePolicy"
                )
            yield task, partial(_play_alone, make)

    return EpisodeStream(
        jobs(),
        # No more idle envs than can play at once, however many kinds the tasks need.
        envs or env_pool(max_idle=concurrency),
        concurrency=concurrency,
        timeout_s=timeout_s,
        closes_envs=envs is None,
    ).episodes()


def env_pool(*, max_idle: int) -> EnvPool[Env]:
    """A pool of envs from `make_env` for several `run_episodes`; close it at the end.

    max_idle: maximum number of envs that wait to be used again.

        with closing(env_pool(max_idle=64)) as envs:
            for tasks in batches:
                async for episode in run_episodes(tasks, make_policy, envs=envs):
                    ...
    """

    def is_on_loop(task: Task) -> bool:
        # A module that is not imported yet registers its ids when the env is made.
        spec = gym.registry.get(task.env_id.rpartition(":")[2])
        return spec is not None and is_made_on_loop(spec.entry_point)

    def made(task: Task) -> Env:
        return awaitable_env(make_env(task.env_id, **task.kwargs))

    return EnvPool(made, max_idle, on_loop=is_on_loop)


@asynccontextmanager
async def task_env(task: Task) -> AsyncIterator[Env]:
    """An env for the task, made on the thread on which it is called, and closed after the block.

    async with task_env(task) as env:
        rollout = await run_episode(env, policy, task)
    """
    env = await env_pool(max_idle=1).make(task)
    try:
        yield env
    finally:
        await aclose(env)


def fixed_seats(players: Sequence[str], agents: Sequence[str], game: int) -> Mapping[str, str]:
    """Seat each player as the agent of the same name."""
    return {player: player for player in players}


def rotating_seats(players: Sequence[str], agents: Sequence[str], game: int) -> Mapping[str, str]:
    """Seat the players in order in game 0, and move them by one seat in each further game.

    Raises ConfigError unless there are as many players as agents.

    >>> [rotating_seats(["a", "b"], ["x", "o"], game) for game in range(2)]
    [{'x': 'a', 'o': 'b'}, {'x': 'b', 'o': 'a'}]
    """
    if len(players) != len(agents):
        raise ConfigError(f"players {list(players)} cannot rotate over agents {list(agents)}")
    return {agent: players[(i - game) % len(players)] for i, agent in enumerate(agents)}


def match_pool(view: View = "aec", *, max_idle: int) -> EnvPool[MatchEnv]:
    """A pool of envs from `pettingzoo.make` for several `run_matches`; close it at the end.

    view: "aec" (one agent moves at a time) or "parallel" (all at once).
    max_idle: maximum number of envs that wait to be used again.
    """

    def made(task: Task) -> MatchEnv:
        match_env: MatchEnv = pettingzoo.make(view, task.env_id, **task.kwargs)
        return match_env

    def is_on_loop(task: Task) -> bool:
        registry = pettingzoo.aec_registry if view == "aec" else pettingzoo.parallel_registry
        spec = registry.get(task.env_id)
        return spec is not None and str(spec.entry_point).startswith(QUICK)

    return EnvPool(made, max_idle, on_loop=is_on_loop)


def run_matches(
    tasks: Iterable[Task],
    players: Mapping[str, MakePlayer] | MakePlayer,
    *,
    view: View = "aec",
    seating: Seating = rotating_seats,
    first_game: int = 0,
    concurrency: int = 64,
    timeout_s: float | None = None,
    envs: EnvPool[MatchEnv] | None = None,
) -> AsyncGenerator[Episode, None]:
    """Play every task once as a match; as `run_episodes`, with a rollout for each player.

    players: policies by the name of the player; or one that plays every agent (self-play), each
        under the agent's own name. Each rollout names its player and its agent.
    seating: from players to agents. Tasks of one group that follow each other count as one game,
        so that they have the same seats; games are numbered from `first_game`.
    envs: a pool of `match_pool` to play in, which stays open; without it, envs are closed at the
        end.
    tasks, view, concurrency, timeout_s: see `run_episodes` and `match_pool`.

    >>> import asyncio
    >>> from ludic_gym import OraclePolicy, RandomPolicy, Sampling
    >>> async def winners() -> list[str]:
    ...     seeded = Sampling(seed=0)
    ...     game = "ludic/ConnectFour-v0"
    ...     tasks = [Task(env_id=game, seed=seed, sampling=seeded) for seed in range(2)]
    ...     matches = run_matches(tasks, {"weak": RandomPolicy, "strong": OraclePolicy})
    ...     both = [rollout async for match in matches for rollout in match.rollouts]
    ...     return [rollout.player for rollout in both if rollout.total_reward > 0]
    >>> asyncio.run(winners())
    ['strong', 'strong']
    """

    def jobs() -> Iterator[tuple[Task, Play[MatchEnv]]]:
        game, group = first_game - 1, ""
        for task in tasks:
            if not task.group or task.group != group:
                game += 1
            group = task.group
            yield task, partial(_play_match, players, seating, game)

    return EpisodeStream(
        jobs(),
        envs or match_pool(view, max_idle=concurrency),
        concurrency=concurrency,
        timeout_s=timeout_s,
        closes_envs=envs is None,
    ).episodes()


async def _play_alone(make_policy: MakePolicy, env: Env, task: Task) -> tuple[Rollout, ...]:
    """The one rollout of an episode. Raises EpisodeError for a failure that the env reports."""
    rollout = await run_episode(env, make_policy(env), task)
    last = rollout.steps[-1]
    # A sandbox or server of the env has failed, which is no result of the policy.
    if last.truncated and last.info.get("error"):
        reason = str(last.info["error"])
        raise EpisodeError(reason, blame=blame_reported(reason))
    return (rollout,)


async def _play_match(
    players: Mapping[str, MakePlayer] | MakePlayer,
    seating: Seating,
    game: int,
    env: MatchEnv,
    task: Task,
) -> tuple[Rollout, ...]:
    if callable(players):
        # One policy for all: each agent is its own player, so no seat rotates.
        players, seating = dict.fromkeys(env.possible_agents, players), fixed_seats
    seats = seating(tuple(players), env.possible_agents, game)
    policies = {agent: players[player](env) for agent, player in seats.items()}
    rollouts = await run_match(env, policies, task)
    return tuple(replace(rollout, player=seats[rollout.agent]) for rollout in rollouts)
