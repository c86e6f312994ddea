"""Settings of a training run: what learns, how, from which samples, and how it is measured.

A setting is a field with its meaning below it: the command line, config files and `lt.train` get
all of their options, defaults and texts from here. Its least value is in its metadata.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ludic_gym.errors import ConfigError
from ludic_gym.harness import IN_PYTHON, STRICT, Harness
from ludic_gym.sampling import check_sampling
from ludic_gym.terminal import suggestion
from ludic_gym.types import Sampling
from ludic_train.runs.preset_options import check_options

MAX_TOKENS = 256


def at_least(least: float, default: Any) -> Any:  # noqa: ANN401 - as of `field`
    """A field with a default and a least value."""
    return field(default=default, metadata={"least": least})


def _check_least(settings: Any) -> None:  # noqa: ANN401 - any of the objects below
    for each in fields(settings):
        least, value = each.metadata.get("least"), getattr(settings, each.name)
        if least is not None and value is not None and not value >= least:
            raise ConfigError(f"{each.name} must be at least {least}, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tune:
    """The params of a model that learn, and their numbers."""

    lora_rank: int = at_least(0, 16)
    """Rank of the adapters of `model`; 0 trains all its params."""
    lora_alpha: float | None = None
    """Scale of the adapters, divided by their rank; without it, twice the rank."""
    lora_targets: str = "all-linear"
    """Modules that get adapters, such as q_proj,v_proj."""
    dtype: Literal["auto", "float32", "bf16"] = "auto"
    """Type of forward and backward. "bf16" computes in bfloat16 over float32 params and moments;
    "auto" is bf16 on a CUDA card and float32 on a CPU."""
    router_replay: bool = False
    """A mixture of experts learns through the experts that its tokens were sampled by, as the
    engine reports them (R3, arXiv:2510.11370)."""

    def __post_init__(self) -> None:
        _check_least(self)
        if self.dtype not in ("auto", "float32", "bf16"):
            raise ConfigError(f"dtype={self.dtype!r}; it is auto, float32 or bf16")
        if not self.lora_rank and self.adapter_settings != {"targets": "all-linear"}:
            raise ConfigError(
                "lora_rank=0 trains all params, without adapters: leave out "
                f"{self.adapter_settings}"
            )

    @property
    def adapter_settings(self) -> dict[str, Any]:
        """Settings of the adapters beside their rank, without those that were left open."""
        alpha = {} if self.lora_alpha is None else {"alpha": self.lora_alpha}
        return {**alpha, "targets": self.lora_targets}


@dataclass(frozen=True, slots=True, kw_only=True)
class Learn:
    """Batches, updates, and terms of the loss."""

    updates: int = at_least(1, 200)
    """Updates on the policy's own episodes, rounded up to whole batches of `minibatches`."""
    lr: float | None = None
    """Peak learning rate of these. Without it, 1e-3 for a tiny model, 5e-4 for adapters and 1e-5
    for all params of a model."""
    warmup: float = at_least(0, 0.05)
    """Share of the updates of each stage over which the rate rises to its peak."""
    groups: int = at_least(1, 32)
    """Tasks in a batch."""
    # One episode alone has nothing to be compared with: it teaches nothing.
    group_size: int = at_least(2, 8)
    """Episodes of each task, whose rewards are compared with each other."""
    minibatches: int = at_least(1, 1)
    """Updates made from one batch."""
    full_batches: bool = False
    """Groups whose rewards are all equal, and teach nothing, are replaced by those of further
    tasks."""
    max_lag: int | None = None
    """With a queue, age in updates that a group may have at the last one made from it; without it,
    one batch is played while another is trained on (2 * `minibatches` - 1)."""
    kl: float = at_least(0, 0.0)
    """Coefficient of a KL term that keeps the policy close to the model it began as; with
    `minibatches` or a queue, corrected for samples of earlier params."""
    entropy: float | None = at_least(0, None)
    """Coefficient of the entropy bonus. Without it, 0.05 for a tiny model, which falls to 0, and 0
    for others."""
    final_entropy: float | None = None
    """Coefficient that it falls to, on a straight line over `updates`; without it, an `entropy`
    that is given stays."""
    demonstrations: int = at_least(0, 0)
    """Episodes for supervised fine-tuning before learning from rewards."""
    sft_updates: int = at_least(0, 0)
    """Supervised updates on the demonstrations, 128 rollouts each; 0 makes one pass."""
    sft_lr: float = 3e-3
    """Peak learning rate of these."""

    def __post_init__(self) -> None:
        _check_least(self)
        if not self.warmup <= 1:
            raise ConfigError(f"warmup={self.warmup} is a share of the updates, at most 1")
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise ConfigError(f"lr={self.lr} must be greater than 0, and finite")
        if (
            self.final_entropy is not None
            and self.entropy is not None
            and not 0 <= self.final_entropy <= self.entropy
        ):
            raise ConfigError(
                f"final_entropy={self.final_entropy}; the bonus falls from entropy={self.entropy}, "
                "so it must be between 0 and that"
            )
        if self.max_lag is not None and self.max_lag < self.minibatches - 1:
            raise ConfigError(
                f"max_lag={self.max_lag}, but the last of minibatches={self.minibatches} updates "
                f"from a batch is {self.minibatches - 1} after the first: raise it to that or more"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Episodes: how the model is sampled from, and where replies end."""

    max_tokens: int | None = at_least(1, None)
    """Longest reply, in tokens. Without it, 256 for a model, and as long as the longest
    demonstration for a tiny one."""
    max_length: int | None = None
    """Longest prompt and completion together, in tokens: a reply ends there, and an episode whose
    dialog leaves no room for a reply is truncated. Without it, what the model or its server can
    hold."""
    max_turns: int | None = at_least(1, None)
    """Longest episode, in turns. Without it, as long as the environment lets it be."""
    temperature: float = 1.0
    """Of sampling the episodes that are learned from."""
    top_p: float = 1.0
    """Sample from the smallest set of tokens that holds this share of the probability. What top_p,
    top_k and min_p leave is the policy that learns, and that is evaluated at temperatures above 0.
    """
    top_k: int = 0
    """Sample from this many of the likeliest tokens; 0 for all."""
    min_p: float = 0.0
    """Sample from tokens with at least this share of the likeliest one's probability."""
    chat_args: Annotated[Mapping[str, Any], tyro.conf.Suppress] = field(default_factory=dict)
    """Arguments of the model's chat template, by name."""
    agent: str | None = None
    """Program that plays the episodes with the model, as a command or module:function; see
    `agent_episode`. Without it, each observation is a message to the model."""

    def __post_init__(self) -> None:
        _check_least(self)
        if not self.temperature > 0:
            raise ConfigError(
                f"temperature={self.temperature}: episodes that are learned from are sampled, so "
                "it must be above 0"
            )
        check_sampling(self.sampling)

    @property
    def sampling(self) -> Sampling:
        """Sampling parameters of the episodes that are learned from, without a seed."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            max_tokens=self.max_tokens or MAX_TOKENS,
            max_length=self.max_length,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Evaluations on the way, and floors below which a run stops."""

    eval_every: int = at_least(1, 100)
    """Updates between two evaluations and checkpoints."""
    eval_episodes: int = at_least(1, 200)
    """Episodes of an evaluation, per set of evaluation tasks."""
    final_episodes: int = at_least(1, 1_000)
    """The same for the last evaluation, when training has ended."""
    least_entropy: float | None = None
    """Mean entropy of ten updates, in nats per token, below which the run stops."""
    least_reward: float | None = None
    """Mean reward of ten updates below which the run stops."""

    def __post_init__(self) -> None:
        _check_least(self)
        for name in ("least_entropy", "least_reward"):
            if not math.isfinite(getattr(self, name) or 0.0):
                raise ConfigError(f"{name}={getattr(self, name)}; a floor must be finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Settings of a training run.

        config = RunConfig(out=Path("runs/gsm8k"), model="Qwen/Qwen2.5-0.5B-Instruct")
        config = config.changed(updates=500, lora_rank=32)    # config.learn, config.tune

    Raises ConfigError for a value below its least one, and for unknown algorithms and parsers.
    """

    out: Path
    """Folder of the run: settings, numbers, checkpoints, model and report."""
    seed: int = at_least(0, 0)
    """Of everything that is random: params, demonstrations, episodes, sampling."""
    model: str | None = None
    """Run folder, model folder or hub id of a chat model to train. Without it, a tiny model is
    made."""
    algo: str = "grpo"
    """Algorithm that learns from rewards."""
    algo_options: Annotated[Mapping[str, Any], tyro.conf.Suppress] = field(default_factory=dict)
    """Options of the algorithm, by name."""
    reward: str | None = None
    """module:function, from a rollout to its reward, in place of the environment's."""
    tune: Annotated[Tune, tyro.conf.arg(name="")] = field(default_factory=Tune)
    """The params that learn."""
    learn: Annotated[Learn, tyro.conf.arg(name="")] = field(default_factory=Learn)
    """Batches and updates."""
    sample: Annotated[Sample, tyro.conf.arg(name="")] = field(default_factory=Sample)
    """Episodes that are learned from."""
    harness: Annotated[Harness, tyro.conf.arg(name="")] = field(default_factory=Harness)
    """Prompts, context, parser and tools of the model; parts left out are those of its training."""
    evaluate: Annotated[Evaluate, tyro.conf.arg(name="")] = field(default_factory=Evaluate)
    """Evaluations."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", Path(self.out))
        _check_least(self)
        agent, harness = self.sample.agent, self.harness
        if agent is not None and harness != Harness(
            parser=harness.parser, attempts=harness.attempts
        ):
            raise ConfigError(
                f"agent={agent!r} makes its own prompts and requests: leave out the harness, but "
                "for its parser and attempts"
            )
        if agent is not None and harness.parser == STRICT:
            raise ConfigError(
                f"agent={agent!r} acts by calls too, which parser={STRICT!r} is not for"
            )
        if self.algo != IN_PYTHON:
            check_options(self.algo, self.algo_options)

    def changed(self, **settings: Any) -> RunConfig:  # noqa: ANN401 - as the fields have
        """The settings with other values, by the names of their fields here or in the objects.

        Raises ConfigError for an unknown name, with the one that is meant.

        >>> RunConfig(out=Path("runs/a")).changed(updates=500, lora_rank=8).learn.updates
        500
        """
        check_names(settings, SETTINGS)
        changes = {name: value for name, value in settings.items() if SETTINGS[name] == ""}
        for part in PARTS:
            of_part = {n: value for n, value in settings.items() if SETTINGS[n] == part}
            if of_part:
                changes[part] = replace(changes.get(part, getattr(self, part)), **of_part)
        return replace(self, **changes)

    def flat(self) -> dict[str, Any]:
        """All settings by name, without the objects that hold them."""
        return {
            name: getattr(getattr(self, part) if part else self, name)
            for name, part in SETTINGS.items()
            if name not in PARTS
        }

    @property
    def mode(self) -> Literal["nothing", "lora", "full"]:
        """The part that learns: a model made from nothing, adapters, or all params of a model."""
        if self.model is None:
            return "nothing"
        return "lora" if self.tune.lora_rank else "full"


PARTS: Mapping[str, type] = {
    "tune": Tune,
    "learn": Learn,
    "sample": Sample,
    "harness": Harness,
    "evaluate": Evaluate,
}
SETTINGS: Mapping[str, str] = {
    **{each.name: "" for each in fields(RunConfig)},
    **{each.name: part for part, kind in PARTS.items() for each in fields(kind)},
}
"""The object of each setting, by name; "" for those of RunConfig itself."""


def check_names(names: Mapping[str, Any], allowed: Mapping[str, Any], where: str = "") -> None:
    """Raise ConfigError for a name that is not known, with the one that is meant.

    where: "" for the settings of a run, else what else has these names.
    """
    for name in names:
        if name in allowed:
            continue
        # A run whose settings are right has no need of them.
        from ludic_train.runs.foreign_names import FOREIGN

        if name in FOREIGN:
            raise ConfigError(f"{where or 'a run'} has no setting {name!r}: write {FOREIGN[name]}")
        hint = suggestion(name, sorted(allowed), otherwise="it has")
        raise ConfigError(f"{where or 'a run'} has no setting {name!r}; {hint}")
