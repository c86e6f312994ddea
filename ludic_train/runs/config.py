"""Settings of a training run, and recipes: named settings as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ludic_gym.errors import ConfigError

# Least value of each setting, checked in one place for the command line and for Python.
LEAST = {
    **dict.fromkeys(("seed", "demonstrations", "sft_updates", "lora_rank"), 0),
    **dict.fromkeys(("updates", "groups", "minibatches", "eval_every", "eval_episodes"), 1),
    "final_episodes": 1,
    # One episode alone has nothing to be compared with: it teaches nothing.
    "group_size": 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Settings of a training run.

        config = RunConfig(out=Path("runs/gsm8k"), model="Qwen/Qwen2.5-0.5B-Instruct", updates=500)

    Raises ConfigError for a value below its least one, and for a `max_lag` with which not even a
    group of the newest params could be trained on.

    Attributes:
        out: Folder of the run.
        seed: Of everything that is random: params, demonstrations, episodes, sampling.
        model: Run folder, model folder or hub id of a chat model to train; use a lower `lr` then,
            such as 1e-4. Without it, a tiny model is made.
        lora_rank: Rank of the adapters of `model`; 0 trains all its params.
        demonstrations: Episodes for supervised fine-tuning before learning from rewards; none with
            `model`.
        sft_updates: Supervised updates on the demonstrations, 128 turns each.
        sft_lr: Peak learning rate of these.
        updates: Updates on the policy's own episodes.
        lr: Peak learning rate of these.
        groups: Tasks in a batch.
        group_size: Episodes of each task, whose rewards are compared with each other.
        minibatches: Updates made from one batch.
        max_lag: With a queue, age in updates that a group may have at the last one made from it;
            without it, one batch is played while another is trained on (2 * `minibatches` - 1).
        entropy: Coefficient of the entropy bonus.
        eval_every: Updates between two evaluations and checkpoints.
        eval_episodes: Episodes of an evaluation, per set of evaluation tasks.
        final_episodes: The same for the last evaluation, when training has ended.
    """

    out: Path
    seed: int = 0
    model: str | None = None
    lora_rank: int = 16
    demonstrations: int = 0
    sft_updates: int = 0
    sft_lr: float = 3e-3
    updates: int = 200
    lr: float = 1e-4
    groups: int = 32
    group_size: int = 8
    minibatches: int = 1
    max_lag: int | None = None
    entropy: float = 0.0
    eval_every: int = 100
    eval_episodes: int = 200
    final_episodes: int = 1_000

    def __post_init__(self) -> None:
        values = asdict(self)
        for name, least in LEAST.items():
            if values[name] < least:
                raise ConfigError(f"{name} must be at least {least}, got {values[name]}")
        if self.max_lag is not None and self.max_lag < self.minibatches - 1:
            raise ConfigError(
                f"max_lag={self.max_lag}, but the last of minibatches={self.minibatches} updates "
                f"from a batch is {self.minibatches - 1} after the first: raise it to that or more"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalTasks:
    """Held-out episodes that a policy is measured on.

    kwargs: of the environment, such as {"split": "test"}.
    temperature: of sampling; 0 is greedy, and 1 measures the policy that is trained.
    """

    kwargs: Mapping[str, Any] = field(default_factory=dict)
    temperature: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrations:
    """Episodes for supervised fine-tuning.

    policy: "oracle" plays as well as the environment knows, "random" any legal action.
    kwargs: of the environment. reply: text of the model for an action, such as
        "<answer>{}</answer>"; "{}" is replaced by the action.
    Raises ConfigError for another policy.
    """

    policy: Literal["oracle", "random"]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    reply: str = "{}"

    def __post_init__(self) -> None:
        if self.policy not in ("oracle", "random"):
            raise ConfigError(f'the demonstrator {self.policy!r} must be "oracle" or "random"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A training of one environment, as data.

    name: of the command, `ludic train NAME`. summary: what is learned, as a phrase for its help.
    defaults: settings that options of the command line replace.
    env_id: a registered id. demonstrations: None for recipes that need a `model`.
    kwargs: of the environment, for the episodes that are learned from.
    evals: sets of evaluation tasks, by name, none of which is ever trained on.
    max_tokens: of a completion.
    outcomes: values of the last info's "outcome" whose shares an evaluation reports, beside
        the success rate and the mean reward.
    curves: metrics that are drawn.
    try_it: arguments of `ludic` to use the policy, with "{out}" for the run's folder.
    """

    name: str
    summary: str
    defaults: RunConfig
    env_id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    evals: Mapping[str, EvalTasks]
    demonstrations: Demonstrations | None = None
    max_tokens: int
    outcomes: Sequence[str] = ()
    curves: Sequence[str]
    try_it: str
