"""How a run is made: a recipe and its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ludic_gym.errors import ConfigError
from ludic_gym.types import MakePolicy, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeConfig:
    """How to train.

    Attributes:
        out: Folder of the run.
        seed: Of everything that is random: params, demonstrations, games, sampling.
        model: Run folder, model folder or hub id of a chat model to train by LoRA; use a lower
            `lr` then, such as 1e-4. Without it, a tiny model is made.
        lora_rank: Rank of the adapters of `model`; 0 trains all its params.
        demonstrations: Episodes to imitate first; none with `model`.
        imitation_updates: Updates on the demonstrations, 128 turns each.
        imitation_lr: Peak learning rate of these.
        updates: Updates on the policy's own episodes.
        lr: Peak learning rate of these.
        groups: Tasks in a batch.
        group_size: Episodes of each task; what they earn is compared with each other.
        minibatches: Updates made from one batch.
        max_lag: With a queue, how many updates old a group may be at the last one made from it;
            without it, one batch is played while another is trained on (2 * `minibatches` - 1).
        entropy: Coefficient of the entropy bonus.
        eval_every: Updates between two evaluations and checkpoints.
        eval_episodes: Episodes of an evaluation, per measure.
    """

    out: Path
    seed: int = 0
    model: str | None = None
    lora_rank: int = 16
    demonstrations: int
    imitation_updates: int
    imitation_lr: float = 3e-3
    updates: int
    lr: float
    groups: int = 32
    group_size: int = 8
    minibatches: int = 4
    max_lag: int | None = None
    entropy: float = 0.0
    eval_every: int = 100
    eval_episodes: int = 200

    def __post_init__(self) -> None:
        _check_at_least(
            0,
            seed=self.seed,
            imitation_updates=self.imitation_updates,
            lora_rank=self.lora_rank,
        )
        _check_at_least(
            1,
            demonstrations=self.demonstrations,
            updates=self.updates,
            groups=self.groups,
            minibatches=self.minibatches,
            eval_every=self.eval_every,
            eval_episodes=self.eval_episodes,
        )
        if self.max_lag is not None and self.max_lag < self.minibatches - 1:
            raise ConfigError(
                f"max_lag={self.max_lag}, but the last of minibatches={self.minibatches} updates "
                f"from a batch is {self.minibatches - 1} after the first: raise it to that or more"
            )
        # One episode alone has nothing to be compared with: it teaches nothing.
        _check_at_least(2, group_size=self.group_size)


def _check_at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise ConfigError(f"{name} must be at least {least}, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What tells one training from another.

    demonstrations: the first n tasks of a seed, for `demonstrator` to play; tasks: those of a
        seed, without end; measures: n tasks for each thing that is measured, by name, none of
        which is ever trained on.
    reply: what the model is taught to write for an action, such as "<answer>{}</answer>".
    max_tokens: of a completion.
    outcomes: which shares of the episodes of a measure are reported.
    final_episodes: per measure, when training has ended.
    curves: the metrics to draw.
    try_it: what to type after `ludic` to use the policy, with "{out}" for the run's folder.
    """

    name: str
    summary: str
    defaults: RecipeConfig
    demonstrations: Callable[[int, int], Iterable[Task]]
    demonstrator: MakePolicy
    reply: str = "{}"
    max_tokens: int
    tasks: Callable[[int], Iterator[Task]]
    measures: Callable[[int], Mapping[str, Sequence[Task]]]
    outcomes: Sequence[str]
    final_episodes: int = 1_000
    curves: Sequence[str]
    try_it: str
