"""Statistics that do not depend on how a batch was cut into micro-batches and ranks.

A mean of means is wrong as soon as the parts differ in size. So every part reports a `Stat`, the
sum and what it is a sum over, or another kind below; these add up, and the division happens once,
at the end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from operator import add

from ludic_gym.rollout.outcome import succeeded
from ludic_gym.types import Episode
from ludic_train.errors import MetricError


@dataclass(frozen=True, slots=True)
class Stat:
    """A mean before the division: `sum` over `count` things (tokens, rollouts, seconds...).

    >>> Stat.of([1.0, 0.0, 0.0]).value
    0.3333333333333333
    """

    sum: float
    count: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Stat:
        """The statistic of plain values, each counted once."""
        numbers = tuple(values)
        # fsum, because the order of rollouts changes from run to run and must not show.
        return cls(math.fsum(numbers), len(numbers))

    @property
    def value(self) -> float:
        """The mean; nan where nothing was counted."""
        return self.sum / self.count if self.count else math.nan


@dataclass(frozen=True, slots=True)
class Total:
    """A sum of parts, such as the loss of an update; 0 is a value, so it is never left out."""

    value: float


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest value of all parts; -inf where there was none."""

    value: float = -math.inf

    @classmethod
    def of(cls, values: Iterable[float]) -> Peak:
        """The largest of plain values."""
        return cls(max(values, default=-math.inf))


@dataclass(frozen=True, slots=True)
class SampleSize:
    """The effective sample size of importance weights w, as a share of their number.

    (sum w)^2 / (n sum w^2) is 1 where all weights are equal and 1 / n where one has it all.
    sum, sum_of_squares, count: of w; all three add up over parts, which the share does not.

    >>> equal, one_has_all = SampleSize(4.0, 4.0, 4), SampleSize(4.0, 16.0, 4)
    >>> equal.value, one_has_all.value
    (1.0, 0.25)
    """

    sum: float
    sum_of_squares: float
    count: float

    @property
    def value(self) -> float:
        """The share; nan where nothing was counted."""
        return self.sum**2 / (self.count * self.sum_of_squares) if self.count else math.nan


Metric = Stat | Total | Peak | SampleSize
"""A quantity whose parts can be merged."""

Metrics = dict[str, Metric]
"""Metrics by name."""
# Names of the kinds on the wire, to ranks and through queues.
KINDS: dict[str, type[Metric]] = {kind.__name__: kind for kind in (Stat, Total, Peak, SampleSize)}
# Metrics of which nothing was counted; a total of 0 is a result.
NOTHING: tuple[Metric, ...] = (Stat(0, 0), Peak(), SampleSize(0, 0, 0))


def merge(parts: Iterable[Mapping[str, Metric]]) -> Metrics:
    """The metrics of the whole from those of its parts, in any order; a part may lack a name.

    One kind of metric per name: sums and counts are added, and of a `Peak` the larger one is taken.

    Raises MetricError where one name is a mean in one part and, say, a maximum in another.

    >>> merge([{"reward": Stat(1.0, 3), "lag": Peak(2)}, {"reward": Stat(1.0, 1), "lag": Peak(5)}])
    {'reward': Stat(sum=2.0, count=4), 'lag': Peak(value=5)}
    """
    whole: Metrics = {}
    for part in parts:
        for name, metric in part.items():
            if name not in whole:
                whole[name] = metric
                continue
            sofar = whole[name]
            if type(sofar) is not type(metric):
                raise MetricError(f"metric {name!r} is {sofar} in one part and {metric} in another")
            join = _larger if isinstance(sofar, Peak) else add
            whole[name] = type(sofar)(*map(join, astuple(sofar), astuple(metric)))
    return whole


def _larger(left: float, right: float) -> float:
    # max() would hide a nan that comes second, and so a loss that has diverged.
    return math.nan if math.isnan(left) or math.isnan(right) else max(left, right)


def values(metrics: Mapping[str, Metric]) -> dict[str, float]:
    """One number per name, ready for a logger; names of which nothing was counted are left out.

    The result may hold nan or infinities, where a loss has diverged.

    >>> values({"reward": Stat(3.0, 4), "loss": Total(0.0), "success": Stat(0.0, 0)})
    {'reward': 0.75, 'loss': 0.0}
    """
    # By equality: a Stat that sums to 0 over some tokens is a result, and one over none is not.
    return {name: metric.value for name, metric in metrics.items() if metric not in NOTHING}


def metrics_to_bytes(metrics: Mapping[str, Metric]) -> bytes:
    """The metrics as JSON, floats exact, for other ranks.

    Python's own JSON, which has nan and infinities; no other program reads it.
    """
    plain = {name: [type(metric).__name__, *astuple(metric)] for name, metric in metrics.items()}
    return json.dumps(plain).encode()


def metrics_from_bytes(data: bytes) -> Metrics:
    """The metrics that `metrics_to_bytes` wrote; not for bytes from anywhere else.

    >>> metrics_from_bytes(metrics_to_bytes({"loss": Total(math.nan)}))
    {'loss': Total(value=nan)}
    """
    return {name: KINDS[kind](*numbers) for name, (kind, *numbers) in json.loads(data).items()}


def episode_metrics(episodes: Sequence[Episode]) -> Metrics:
    """Metrics of episodes, failed ones included; of several environments, also for each of them.

    "reward", "turns" and "success" are means per rollout, the last where environments name it;
    "tokens/completion" is a mean per model call; "tokens/sampled" and "episodes" are totals, and
    "episodes/failed" is a share, and so are its parts by cause, "episodes/failed_environment" and
    "episodes/failed_infrastructure"; "replies/legal", "replies/cut" and "replies/empty" are of
    turns. Those of an environment alone end with its id, as in "reward/ludic/Maze-v0".
    """
    ids = dict.fromkeys(episode.task.env_id for episode in episodes)
    split: Metrics = {}
    for env_id in ids if len(ids) > 1 else ():
        env_metrics = _metrics_of(
            [episode for episode in episodes if episode.task.env_id == env_id]
        )
        split |= {f"{name}/{env_id}": metric for name, metric in env_metrics.items()}
    return _metrics_of(episodes) | split


def _metrics_of(episodes: Sequence[Episode]) -> Metrics:
    rollouts = [rollout for episode in episodes for rollout in episode.rollouts]
    steps = [step for rollout in rollouts for step in rollout.steps]
    successes = [success for success in map(succeeded, rollouts) if success is not None]
    calls = [call for step in steps for call in step.decision.completions]
    return {
        "reward": Stat.of([rollout.total_reward for rollout in rollouts]),
        # Not every environment knows success: without it, no end is a failure.
        "success": Stat.of(map(float, successes if len(successes) == len(rollouts) else ())),
        "turns": Stat.of([len(rollout.steps) for rollout in rollouts]),
        "replies/legal": Stat.of([float(not step.illegal) for step in steps]),
        "replies/cut": Stat.of([float(step.decision.cut_off) for step in steps]),
        "replies/empty": Stat.of([float(step.decision.empty) for step in steps]),
        "tokens/completion": Stat.of([len(call.completion_ids or ()) for call in calls]),
        "tokens/sampled": Total(sum(len(call.completion_ids or ()) for call in calls)),
        "episodes/failed": Stat.of([float(episode.error is not None) for episode in episodes]),
        **{
            f"episodes/failed_{cause}": Stat.of([float(e.blame == cause) for e in episodes])
            for cause in ("environment", "infrastructure")
        },
        "episodes": Total(len(episodes)),
    }
