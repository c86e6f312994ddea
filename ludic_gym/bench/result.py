"""Score: one episode in numbers. BenchResult: many episodes in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ludic_gym.bench.statistics import Interval
from ludic_gym.types import Episode, Rollout

# Seeds may have any size, but the integers of a parquet file have 64 bits.
_SEED_BITS = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One episode in numbers.

    index: the episode's position in the request.
    task: the same for all samples of a task: its env seed, or the index where it has none.
    outcome: the env's name for the end (`info["outcome"]`), else "truncated", "parse_error",
        "success" or "failure"; "error" where the episode failed.
    completion_tokens: sampled tokens; None where a server did not return them.
    cut_off: turns whose reply ran into `max_tokens`.
    data: the rows it was played from, with their hash; "" for an env without rows.
    error: why the episode failed, None if it did not; then the other numbers are 0.
    """

    index: int
    task: int
    success: bool = False
    reward: float = 0.0
    outcome: str = "error"
    turns: int = 0
    completion_tokens: int | None = 0
    cut_off: int = 0
    data: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """Many episodes in numbers. Failed episodes are no evidence about the policy: see `errors`.

    episodes: number of finished episodes; `success_rate` and `mean_reward` are over these, nan if
        there are none.
    success_interval: Wilson's, 95%, on the effective number of trials if tasks have samples.
    reward_interval: 95%, from resampling tasks; None with fewer than two of them.
    tasks: number of different tasks.
    pass_at_k, pass_hat_k: entry k - 1 is the probability that one of k samples succeeds, or all of
        them, averaged over tasks; up to the number of samples that every task has, if it is at
        least two.
    outcomes: number of episodes with each outcome, the most frequent first.
    turns, completion_tokens, cut_off: sums over the episodes; None for tokens that a server did not
        return.
    data: the rows they were played from, with their hash: "sample@..." for a bundled sample.
    errors: (index of the episode, reason) of every failed one, by index.
    """

    episodes: int
    successes: int
    success_rate: float
    success_interval: Interval
    mean_reward: float
    reward_interval: Interval | None
    tasks: int = 0
    pass_at_k: tuple[float, ...] = ()
    pass_hat_k: tuple[float, ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict)
    turns: int = 0
    completion_tokens: int | None = 0
    cut_off: int = 0
    data: str = ""
    errors: tuple[tuple[int, str], ...] = ()


def score(episode: Episode) -> Score:
    """The episode in numbers; its one rollout is that of the one-player view.

    Raises ValueError for a finished match, which has a rollout for each player.

    >>> from ludic_gym import Task
    >>> score(Episode(index=3, task=Task(env_id="ludic/Nim-v0", seed=7), error="it broke")).task
    7
    """
    seed = episode.task.seed
    task = episode.index if seed is None else seed & _SEED_BITS
    if episode.error is not None:
        return Score(index=episode.index, task=task, error=episode.error)
    (rollout,) = episode.rollouts
    calls = [call for step in rollout.steps for call in step.decision.completions]
    sampled = [len(call.completion_ids) for call in calls if call.completion_ids is not None]
    return Score(
        index=episode.index,
        task=task,
        success=succeeded(rollout),
        reward=rollout.total_reward,
        outcome=outcome(rollout),
        turns=len(rollout.steps),
        # A sum without the tokens that a server did not return would look like a short reply.
        completion_tokens=sum(sampled) if len(sampled) == len(calls) else None,
        cut_off=sum(step.decision.cut_off for step in rollout.steps),
        data=str(_last_info(rollout).get("data", "")),
    )


def succeeded(rollout: Rollout) -> bool:
    """True if the env calls the end a success; a truncated episode is none."""
    # True itself: any other value, such as a text, is a mistake of the env and no success.
    return _last_info(rollout).get("success") is True


def outcome(rollout: Rollout) -> str:
    """The env's name for the end, else "truncated", "parse_error", "success" or "failure"."""
    info = _last_info(rollout)
    name = info.get("termination_reason", info.get("outcome"))
    if isinstance(name, str):
        return name
    if succeeded(rollout):
        return "success"
    return "truncated" if rollout.steps and rollout.steps[-1].truncated else "failure"


def _last_info(rollout: Rollout) -> Mapping[str, Any]:
    return rollout.steps[-1].info if rollout.steps else {}
