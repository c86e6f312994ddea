"""Batches that are played when the trainer needs them: episodes of one agent, or matches."""

from __future__ import annotations

import weakref
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from ludic_gym.concurrency import gather_all
from ludic_gym.errors import ClientError, ConfigError, EnvError, GraderError, SandboxError
from ludic_gym.recorder import Weights
from ludic_gym.records import task_key
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
from ludic_gym.rollout.outcome import failed_episode
from ludic_gym.rollout.tasks import grouped
from ludic_gym.types import Episode, MakePolicy, Rollout, Task
from ludic_train.errors import CheckpointError, EmptyBatch
from ludic_train.metrics import Metrics, episode_metrics, merge
from ludic_train.rows import (
    credit_by_group,
    credited,
    failed_if_untrainable,
    trajectories_from,
    weighted_rows,
)
from ludic_train.sources.base import TaskHistory, gathered_groups
from ludic_train.sources.levels import (
    Levels,
    restore_levels,
    state_of_levels,
)
from ludic_train.types import SAWBatch, Trajectory

if TYPE_CHECKING:
    # Actors play with this module and hold no torch, which presets need.
    from ludic_train.algorithms.presets import RLAlgorithm

# Retired tasks in a row that end a search: as many for each retired task, and at least so many.
SEARCHES, LEAST_SEARCH = 10, 1_000

Record = Callable[[Sequence[Episode], Mapping[str, Weights] | None], None]
"""Keeps the episodes of a batch, with the credit of their rollouts by group if it is known."""

Reducer = Callable[[Sequence[Rollout]], Metrics]
"""Further metrics of rollouts, as sums and counts, so that parts of a batch add up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Settings of matches in PettingZoo environments; each seat's rollout is learned from.

    Members of a group are games, compared seat by seat.
    players: one policy for every agent (self-play), or policies by the name of the player, such as
        {"learner": ..., "rival": ...} with learners={"learner"}.
    learners: players whose rollouts are learned from; None for all of them.
    view: the environment's interface, agents in turn ("aec") or all at once ("parallel").
    seating: from players to agents, for each game.
    """

    players: MakePlayer | Mapping[str, MakePlayer]
    learners: Collection[str] | None = None
    view: View = "aec"
    seating: Seating = rotating_seats


Score = Callable[[Rollout], Awaitable[Rollout]]
"""From a finished rollout to the same one with other rewards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Episodes whose rewards come from a function of their rollouts, in place of the env's.

    play: the policy of one agent, or `Matches` of several.
    """

    play: MakePolicy | Matches
    score: Score


def playing(
    make_policy: MakePolicy, score: Score | None = None, *, self_play: bool = False
) -> MakePolicy | Matches | Scored:
    """The policy alone, or in all seats of matches; with rewards by `score`, if there is one."""
    # A policy of a model plays any seat of any environment.
    players = cast(MakePlayer, make_policy)
    play = Matches(players=players) if self_play else make_policy
    return play if score is None else Scored(play=play, score=score)


class TaskPlayer:
    """Plays tasks in environments that are kept from call to call.

    concurrency: episodes at a time. timeout_s: seconds after which an episode has failed.
    """

    def __init__(
        self,
        play: MakePolicy | Matches | Scored,
        *,
        concurrency: int,
        timeout_s: float | None = None,
    ) -> None:
        self._score = play.score if isinstance(play, Scored) else None
        play = play.play if isinstance(play, Scored) else play
        self._play, self._concurrency, self._timeout_s = play, concurrency, timeout_s
        # Making an env and checking its first steps costs as much as several short episodes.
        self._envs = env_pool(max_idle=concurrency)
        view: View = play.view if isinstance(play, Matches) else "aec"
        self._match_envs = match_pool(view, max_idle=concurrency)
        # Games so far: the seats of the next ones follow from it.
        self.games = 0

    async def episodes(self, tasks: Sequence[Task]) -> list[Episode]:
        """Episodes of the tasks, in the order of the tasks, with the rollouts of learners.

        One with a number that is not finite has failed.
        """
        running: AsyncGenerator[Episode, None]
        if isinstance(self._play, Matches):
            running = run_matches(
                tasks,
                self._play.players,
                view=self._play.view,
                seating=self._play.seating,
                first_game=self.games,
                concurrency=self._concurrency,
                timeout_s=self._timeout_s,
                envs=self._match_envs,
            )
        else:
            running = run_episodes(
                tasks,
                self._play,
                concurrency=self._concurrency,
                timeout_s=self._timeout_s,
                envs=self._envs,
            )
        # Before they are played: seats rotate over all calls, also over those in flight at once.
        self.games += len({task.group or i for i, task in enumerate(tasks)})
        ended = [episode async for episode in running]
        if isinstance(self._play, Matches) and (learners := self._play.learners) is not None:
            ended = [
                replace(e, rollouts=tuple(r for r in e.rollouts if r.player in learners))
                for e in ended
            ]
        if self._score is not None:
            ended = list(await gather_all(scored(episode, self._score) for episode in ended))
        return sorted(map(failed_if_untrainable, ended), key=lambda episode: episode.index)

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()
        self._match_envs.close()


async def scored(episode: Episode, score: Score) -> Episode:
    """The episode with the score's rewards, or as it was; failed if one has none.

    That is where it is no number, a grader reaches no verdict, or its server or sandbox fails.
    """
    try:
        return replace(episode, rollouts=tuple([await score(r) for r in episode.rollouts]))
    except (EnvError, GraderError, ClientError, SandboxError, TimeoutError) as error:
        # Not a reward of 0, which would say something about the reply.
        return failed_episode(episode, error)


class RolloutBatchSource:
    """Plays `groups_per_batch` tasks, each `group_size` times, and turns the rollouts into rows.

    tasks: read in order, as far as needed; must be seeded when group_size > 1, because the members
        of a group share the env's seed and differ in how they are sampled. Only if their sampling
        is seeded too can a run be repeated.
    play: the policy of one agent, or `Matches` of several; `Scored`, with rewards of your own.
    reducer: further metrics of all rollouts that were played, before filters.
    Failed episodes are left out, and their groups too if fewer than two members survive; where more
    than half of a batch failed, next_batch raises EpisodeError with the first failure.
    concurrency: episodes that are played at a time.
    levels: moved by each batch that is played; `tasks` should be made from its current ones.
    record: gets every episode that was played, failed ones included, before its batch is given.

    Two tasks, each played four times by a model that was made from nothing:

    >>> import asyncio
    >>> from ludic_gym import ChatPolicy, Sampling
    >>> from ludic_train import LocalChatClient, make_tiny_model, make_tokenizer, rloo
    >>> tokenizer = make_tokenizer(["2 + 3 = 5"])
    >>> client = LocalChatClient(make_tiny_model(tokenizer), tokenizer)
    >>> short = Sampling(max_tokens=4)
    >>> tasks = (Task(env_id="ludic/Arithmetic-v0", seed=n, sampling=short) for n in range(100))
    >>> source = RolloutBatchSource(
    ...     tasks, lambda env: ChatPolicy(client), groups_per_batch=2, group_size=4
    ... )
    >>> batch = asyncio.run(source.next_batch(rloo()))
    >>> len(batch.items), len({row.group for row in batch.items}), batch.metrics["turns"]
    (8, 2, Stat(sum=8.0, count=8))
    """

    def __init__(
        self,
        tasks: Iterator[Task],
        play: MakePolicy | Matches | Scored,
        *,
        groups_per_batch: int,
        group_size: int = 1,
        concurrency: int = 256,
        reducer: Reducer | None = None,
        levels: Levels | None = None,
        record: Record | None = None,
    ) -> None:
        if groups_per_batch < 1 or group_size < 1:
            raise ConfigError(
                f"groups_per_batch={groups_per_batch}, group_size={group_size}; both must be >= 1"
            )
        self.tasks = tasks
        self.groups_per_batch = groups_per_batch
        self.group_size = group_size
        self.reducer = reducer
        self.levels = levels
        self.record = record
        # For the batch, to be recorded.
        self._played: list[Episode] = []
        self.taken = 0
        self.history = TaskHistory()
        self._player = TaskPlayer(play, concurrency=concurrency)
        # Also at the interpreter's exit, where environments may hold processes.
        weakref.finalize(self, self._player.close)

    async def next_batch(self, algo: RLAlgorithm) -> SAWBatch:
        """Rows of freshly played groups; plays on while the filter leaves nothing.

        Raises EmptyBatch after many batches without a row, or when the tasks have run out.
        """

        def note(seen: Sequence[Trajectory]) -> Metrics:
            """Count groups in the pass rates and for the levels; metrics of the levels."""
            if algo.retire_at is not None:
                self.history.note(seen, algo.retire_at)
            return {} if self.levels is None else self.levels.note(seen)

        spare = 0 if self.levels is None else self.levels.batches_down(self.groups_per_batch)
        credit = None
        try:
            batch = await gathered_groups(self, algo, self.groups_per_batch, note, spare=spare)
            by_step = credited(batch.kept, batch.learned, algo)
            credit = credit_by_group(batch.seen, batch.learned, by_step, algo)
        finally:
            played, self._played = self._played, []
            if self.record is not None:
                self.record(played, credit)
        items = tuple(weighted_rows(batch.learned, by_step, algo))
        metrics = merge([batch.metrics, note(batch.seen)])
        if self.levels is not None:
            metrics |= self.levels.metrics()
        return SAWBatch(items=items, metrics=metrics)

    def state_dict(self) -> dict[str, Any]:
        """Numbers of tasks taken and of games played, the pass rates of tasks, and the levels."""
        history = self.history.state_dict()
        state = {"taken": self.taken, "games": self._player.games, "history": history}
        return state | state_of_levels(self.levels)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Skip the tasks that were taken already; `tasks` must be a fresh, equal iterator."""
        if not state.keys() >= {"taken", "games", "history"}:
            raise CheckpointError(
                f"the checkpoint's source kept {sorted(state)}: that run learned from another kind "
                "of source, such as a queue; resume it with that"
            )
        skip = int(state["taken"]) - self.taken
        if skip < 0:
            raise ConfigError(f"cannot go back from task {self.taken} to task {state['taken']}")
        self.taken += sum(1 for _ in islice(self.tasks, skip))
        self._player.games = int(state["games"])
        self.history.load_state_dict(state["history"])
        restore_levels(self.levels, state)

    async def take(self, count: int) -> tuple[list[Trajectory], Metrics]:
        """Trajectories of `count` further tasks, and metrics of their episodes."""
        tasks = self._next_tasks(count)
        requests = list(grouped(tasks, self.group_size)) if self.group_size > 1 else tasks
        episodes = await self._player.episodes(requests)
        # Before filters, so that metrics describe the policy and not the selection.
        rollouts = [rollout for episode in episodes for rollout in episode.rollouts]
        further = self.reducer(rollouts) if self.reducer else {}
        metrics = merge([episode_metrics(episodes), further])
        if self.record is not None:
            self._played += episodes
        return trajectories_from(episodes, self.group_size), metrics

    async def keep(self, groups: Collection[str]) -> None:
        """Do nothing: groups that were played here wait nowhere."""

    def _next_tasks(self, wanted: int) -> list[Task]:
        """Up to `wanted` further tasks that are not retired; fewer after a search in vain.

        Raises EmptyBatch where there is none: the tasks ran out, or all that come are retired.
        """
        tasks: list[Task] = []
        retired, passed = self.history.retired, 0
        # An iterator without end may repeat retired tasks alone. Many times their number, because
        # it may draw tasks at random, and the last few that are left come rarely then.
        longest = max(LEAST_SEARCH, SEARCHES * len(retired))
        for task in self.tasks:
            # Retired ones count as taken: a resumed run skips as many of the iterator.
            self.taken += 1
            if retired and task_key(task) in retired:
                passed += 1
            else:
                tasks.append(task)
                passed = 0
            if len(tasks) == wanted or passed == longest:
                break
        if not tasks:
            end = "ran out" if passed < longest else f"brought {passed} retired ones in a row"
            raise EmptyBatch(f"the tasks {end} after {self.taken}; {len(retired)} are retired")
        return tasks
