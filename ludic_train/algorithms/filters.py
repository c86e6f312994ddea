"""Which rollouts are learned from: functions from rollouts to those that are kept, in order.

They see raw rewards, before any credit, and whole groups.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from ludic_gym.errors import ConfigError
from ludic_gym.types import Rollout

Filter = Callable[[Sequence[Rollout]], list[Rollout]]


def drop_truncated(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Without the rollouts whose episode was cut off, by `max_turns` or by the env."""
    return [r for r in rollouts if not (r.steps and r.steps[-1].truncated)]


def drop_incomplete_completions(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Without the rollouts in which a completion was cut off by `max_tokens`."""
    return [rollout for rollout in rollouts if not _has_cut_off(rollout)]


def drop_parse_errors(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Without the rollouts in which a decision could not be parsed into an action."""
    return [r for r in rollouts if all(step.decision.action is not None for step in r.steps)]


def drop_zero_variance_groups(tolerance: float = 1e-9) -> Filter:
    """A filter that drops groups whose members' returns span no more than `tolerance`.

    They have nothing to compare: group-relative credit gives them zero. Groups of one, such as
    those whose other members failed, are dropped by the same rule. A group is the rollouts with
    one `task.group` and agent; rollouts without a group are all kept. Returns are sums of step
    rewards, what a parser gave or took included.
    """
    if not 0 <= tolerance < math.inf:
        raise ConfigError(f"tolerance is {tolerance}; it must be finite and >= 0")

    def keep(rollouts: Sequence[Rollout]) -> list[Rollout]:
        earned: dict[tuple[str, str], list[float]] = {}
        for r in rollouts:
            earned.setdefault((r.task.group, r.agent), []).append(r.total_reward)
        mixed = {key for key, returns in earned.items() if _spans_more(returns, tolerance)}
        return [r for r in rollouts if not r.task.group or (r.task.group, r.agent) in mixed]

    return keep


def keep_best(count: int = 1, *, above: float = 0.0) -> Filter:
    """A filter that keeps the `count` best rollouts of each group, of those that earned more.

    above: what a rollout must have earned more than, to be kept at all. Among equals the first
        are kept. A group is as for `drop_zero_variance_groups`; without one, every rollout that
        earned enough is kept.
    """
    if count < 1 or not math.isfinite(above):
        raise ConfigError(f"count={count}, above={above}; the first is at least 1, above finite")

    def keep(rollouts: Sequence[Rollout]) -> list[Rollout]:
        ranking = sorted(range(len(rollouts)), key=lambda i: -rollouts[i].total_reward)
        taken: Counter[tuple[str, str]] = Counter()
        kept = []
        for i in ranking:
            task, agent = rollouts[i].task, rollouts[i].agent
            if rollouts[i].total_reward > above and (
                not task.group or taken[task.group, agent] < count
            ):
                taken[task.group, agent] += 1
                kept.append(i)
        return [rollouts[i] for i in sorted(kept)]

    return keep


def drop_stale(version: Callable[[], int], max_lag: int) -> Filter:
    """A filter that drops rollouts sampled by params more than `max_lag` updates old.

    version: gives the update whose params are the newest, when rollouts are filtered. Completions
        without a version, such as recorded ones, are never stale.
    """

    def keep(rollouts: Sequence[Rollout]) -> list[Rollout]:
        oldest = version() - max_lag
        return [r for r in rollouts if all(v >= oldest for v in _versions(r))]

    return keep


def combine(*filters: Filter) -> Filter:
    """A filter that applies `filters` from left to right."""

    def keep(rollouts: Sequence[Rollout]) -> list[Rollout]:
        kept = list(rollouts)
        for each in filters:
            kept = each(kept)
        return kept

    return keep


def _spans_more(returns: Sequence[float], tolerance: float) -> bool:
    # A nan is kept, for the credit assigner to refuse it by name.
    return any(map(math.isnan, returns)) or max(returns) - min(returns) > tolerance


def _versions(rollout: Rollout) -> list[int]:
    calls = [call for step in rollout.steps for call in step.decision.completions]
    return [call.policy_version for call in calls if call.policy_version is not None]


def _has_cut_off(rollout: Rollout) -> bool:
    completions = [c for step in rollout.steps for c in step.decision.completions]
    return any(completion.finish_reason == "length" for completion in completions)
