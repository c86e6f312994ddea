"""Filters: selection of rollouts, by raw rewards before credit, or after it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from ludic_gym.errors import ConfigError
from ludic_train.types import Trajectory

Filter = Callable[[Sequence[Trajectory]], list[Trajectory]]
"""From the trajectories of a batch to those that are kept, in order."""


def drop_truncated(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Rollouts whose episode ended by itself, not by `max_turns` or a limit of the environment.

    A parse failure on the last attempt ends an episode by itself, so such a rollout is kept.
    """
    return [trajectory for trajectory in trajectories if not trajectory.truncated]


def drop_incomplete_completions(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Rollouts without a completion that `max_tokens` cut off."""
    return [trajectory for trajectory in trajectories if not trajectory.completions[:, 2].any()]


def drop_parse_errors(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Rollouts in which every reply could be parsed into an action."""
    return [trajectory for trajectory in trajectories if trajectory.parsed.all()]


def drop_zero_variance_groups(tolerance: float = 1e-9) -> Filter:
    """Filter that drops groups whose members' returns span no more than `tolerance`.

    Their members cannot be compared: group-relative credit gives them zero. Groups of one, such as
    those whose other members failed, are dropped by the same rule. A group is the rollouts with
    one `group` and agent; rollouts without a group are all kept. Returns are sums of step rewards,
    those of a parser included.
    """
    if not 0 <= tolerance < math.inf:
        raise ConfigError(f"tolerance is {tolerance}; it must be finite and >= 0")

    def keep(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        earned: dict[tuple[str, str], list[float]] = {}
        for t in trajectories:
            earned.setdefault((t.group, t.agent), []).append(t.total_reward)
        # A nan is kept, for the credit assigner to refuse it by name.
        mixed = {
            key
            for key, returns in earned.items()
            if any(map(math.isnan, returns)) or max(returns) - min(returns) > tolerance
        }
        return [t for t in trajectories if not t.group or (t.group, t.agent) in mixed]

    return keep


def keep_best(count: int = 1, *, above: float = 0.0) -> Filter:
    """Filter that keeps the `count` best rollouts of each group.

    above: return that a rollout must exceed to be kept at all. Among equals the first are kept. A
        group is as for `drop_zero_variance_groups`; without one, every rollout that exceeds `above`
        is kept.
    """
    if count < 1 or not math.isfinite(above):
        raise ConfigError(f"count={count}, above={above}; the first is at least 1, above finite")

    def keep(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        earned = [trajectory.total_reward for trajectory in trajectories]
        taken: Counter[tuple[str, str]] = Counter()
        selected = []
        # A stable sort: of equal rollouts the first stays, whatever the group's size.
        for i in sorted(range(len(earned)), key=lambda i: -earned[i]):
            group, agent = trajectories[i].group, trajectories[i].agent
            if earned[i] > above and (not group or taken[group, agent] < count):
                taken[group, agent] += 1
                selected.append(i)
        return [trajectories[i] for i in sorted(selected)]

    return keep


def combine(*filters: Filter) -> Filter:
    """Filter that applies `filters` from left to right: a rollout is kept if all keep it."""

    def keep(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        selected = list(trajectories)
        for each in filters:
            selected = each(selected)
        return selected

    return keep
