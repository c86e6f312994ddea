"""Settings of a training run, and recipes: what is learned, with its settings, as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ludic_gym.errors import ConfigError
from ludic_gym.parsers import named_parser
from ludic_gym.sampling import check_sampling
from ludic_gym.types import Sampling
from ludic_train.runs.preset_options import check_options
from ludic_train.sources.levels import LevelSchedule

# Least value of each setting, checked in one place for the command line, for files and for Python.
LEAST = {
    **dict.fromkeys(("seed", "demonstrations", "sft_updates", "lora_rank", "think_tokens"), 0),
    **dict.fromkeys(("updates", "groups", "minibatches", "eval_every", "eval_episodes"), 1),
    "final_episodes": 1,
    # One episode alone has nothing to be compared with: it teaches nothing.
    "group_size": 2,
    **dict.fromkeys(("kl", "entropy", "warmup"), 0.0),
    **dict.fromkeys(("max_tokens", "max_turns", "attempts"), 1),
}
MAX_TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Settings of a training run.

        config = RunConfig(out=Path("runs/gsm8k"), model="Qwen/Qwen2.5-0.5B-Instruct", updates=500)

    Raises ConfigError for a value below its least one, for unknown algorithms and parsers, and for
    a `max_lag` with which not even a group of the newest params could be trained on.

    Attributes:
        out: Folder of the run.
        seed: Of everything that is random: params, demonstrations, episodes, sampling.
        model: Run folder, model folder or hub id of a chat model to train. Without it, a tiny model
            is made.
        lora_rank: Rank of the adapters of `model`; 0 trains all its params.
        lora_alpha: Scale of the adapters, divided by their rank; without it, twice the rank.
        lora_targets: Modules that get adapters, such as q_proj,v_proj.
        rslora: Divides the scale by the root of the rank: for ranks of 64 and more.
        dora: Learns sizes and directions of columns apart, with the local engine alone.
        dtype: Type of forward and backward. "bf16" computes in bfloat16 over float32 params and
            moments; "auto" is bf16 on a CUDA card and float32 on a CPU.
        algo: Algorithm that learns from rewards.
        algo_options: Options of the algorithm, by name.
        kl: Coefficient of a KL term that keeps the policy close to the model it began as.
        entropy: Coefficient of the entropy bonus. Without it, 0.05 for a tiny model, which falls to
            0, and 0 for others.
        final_entropy: Coefficient that it falls to, on a straight line over `updates`; without it,
            an `entropy` that is given stays.
        target_entropy: Nats per token below which the coefficient rises from 0 by 0.005 a batch,
            up to `entropy`, and above which it falls and gives no bonus.
        demonstrations: Episodes for supervised fine-tuning before learning from rewards.
        sft_updates: Supervised updates on the demonstrations, 128 rollouts each; 0 makes one pass.
        sft_lr: Peak learning rate of these.
        updates: Updates on the policy's own episodes, rounded up to whole batches of `minibatches`.
        lr: Peak learning rate of these. Without it, 1e-3 for a tiny model, 5e-4 for adapters and
            1e-5 for all params of a model.
        warmup: Share of the updates of each stage over which the rate rises to its peak.
        adamw_bits: Bits of each of AdamW's two moments, 32 or 8; 8 saves 6 bytes per trained param.
        router_replay: A mixture of experts learns through the experts that its tokens were sampled
            by, as the engine reports them (R3, arXiv:2510.11370).
        groups: Tasks in a batch.
        group_size: Episodes of each task, whose rewards are compared with each other.
        minibatches: Updates made from one batch.
        full_batches: Groups whose rewards are all equal, and teach nothing, are replaced by those
            of further tasks.
        max_lag: With a queue, age in updates that a group may have at the last one made from it;
            without it, one batch is played while another is trained on (2 * `minibatches` - 1).
        max_tokens: Longest reply, in tokens. Without it, 256 for a model, and as long as the
            longest demonstration for a tiny one.
        max_length: Longest prompt and completion together, in tokens: a reply ends there, and an
            episode whose dialog leaves no room for a reply is truncated. Without it, what the model
            or its server can hold.
        think_tokens: Tokens after which a thought is ended, so that an answer follows it; 0 lets
            thoughts go on. Without it, 6/7 of `max_tokens` for the algorithm scalerl, and no limit
            for others.
        think_closing: Text that ends a thought, by default "</think>" on a line of its own. A reply
            with its last word already is left alone.
        max_turns: Longest episode, in turns. Without it, as long as the environment lets it be.
        attempts: Replies without an action after which an episode has failed. Without it, one where
            an episode is one question, and no limit elsewhere.
        temperature: Of sampling the episodes that are learned from.
        top_p: Sample from the smallest set of tokens that holds this share of the probability.
            What top_p, top_k and min_p leave is the policy that learns, and that is evaluated at
            temperatures above 0.
        top_k: Sample from this many of the likeliest tokens; 0 for all.
        min_p: Sample from tokens with at least this share of the likeliest one's probability.
        parser: Part of a reply that is the action: xml:TAG, boxed, json:FIELD or last-number.
            Without it, the whole reply.
        context: Prompts hold the newest observation alone (latest) or the dialog so far (full).
            Without it, as the model was trained; latest for one that is made from nothing.
        system_prompt: Without it, the environment's.
        chat_args: Arguments of the model's chat template, by name.
        agent: Program that plays the episodes with the model, as a command or module:function; see
            `agent_episode`. Without it, each observation is a message to the model.
        reward: module:function, from a rollout to its reward, in place of the environment's.
        least_entropy: Mean entropy of ten updates, in nats per token, below which the run stops.
        least_reward: Mean reward of ten updates below which the run stops.
        eval_every: Updates between two evaluations and checkpoints.
        eval_episodes: Episodes of an evaluation, per set of evaluation tasks.
        final_episodes: The same for the last evaluation, when training has ended.
    """

    out: Path
    seed: int = 0
    model: str | None = None
    lora_rank: int = 16
    lora_alpha: float | None = None
    lora_targets: str = "all-linear"
    rslora: bool = False
    dora: bool = False
    dtype: Literal["auto", "float32", "bf16"] = "auto"
    algo: str = "grpo"
    # Options of their own on the command line, as --algo.NAME.
    algo_options: Annotated[Mapping[str, Any], tyro.conf.Suppress] = field(default_factory=dict)
    kl: float = 0.0
    entropy: float | None = None
    final_entropy: float | None = None
    target_entropy: float | None = None
    demonstrations: int = 0
    sft_updates: int = 0
    sft_lr: float = 3e-3
    updates: int = 200
    lr: float | None = None
    warmup: float = 0.05
    adamw_bits: Literal[8, 32] = 32
    router_replay: bool = False
    groups: int = 32
    group_size: int = 8
    minibatches: int = 1
    full_batches: bool = False
    max_lag: int | None = None
    max_tokens: int | None = None
    max_length: int | None = None
    think_tokens: int | None = None
    think_closing: str | None = None
    max_turns: int | None = None
    attempts: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    parser: str | None = None
    context: Literal["latest", "full"] | None = None
    system_prompt: str | None = None
    # On the command line --chat-arg NAME=VALUE, once for each.
    chat_args: Annotated[Mapping[str, Any], tyro.conf.Suppress] = field(default_factory=dict)
    agent: str | None = None
    reward: str | None = None
    least_entropy: float | None = None
    least_reward: float | None = None
    eval_every: int = 100
    eval_episodes: int = 200
    final_episodes: int = 1_000

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        if not self.temperature > 0:
            raise ConfigError(
                f"temperature={self.temperature}: episodes that are learned from are sampled, so "
                "it must be above 0"
            )
        check_sampling(self.sampling)
        for name in ("least_entropy", "least_reward"):
            if not math.isfinite(getattr(self, name) or 0.0):
                raise ConfigError(f"{name}={getattr(self, name)}; a floor must be finite")
        if self.dtype not in ("auto", "float32", "bf16"):
            raise ConfigError(f"dtype={self.dtype!r}; it is auto, float32 or bf16")
        if self.adamw_bits not in (8, 32):
            raise ConfigError(f"adamw_bits={self.adamw_bits}; moments have 32 bits or 8")
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
        if self.target_entropy is not None and (
            not self.target_entropy > 0 or self.entropy == 0 or self.final_entropy is not None
        ):
            raise ConfigError(
                f"target_entropy={self.target_entropy} with entropy={self.entropy} and "
                f"final_entropy={self.final_entropy}; it is above 0, `entropy` is the largest "
                "coefficient, and nothing else may set it"
            )
        if self.max_lag is not None and self.max_lag < self.minibatches - 1:
            raise ConfigError(
                f"max_lag={self.max_lag}, but the last of minibatches={self.minibatches} updates "
                f"from a batch is {self.minibatches - 1} after the first: raise it to that or more"
            )
        if self.think_closing is not None and not self.think_closing.strip():
            raise ConfigError(f"think_closing={self.think_closing!r} has no word")
        if not self.lora_rank and self.adapter_settings != {"targets": "all-linear"}:
            raise ConfigError(
                "lora_rank=0 trains all params, without adapters: leave out "
                f"{self.adapter_settings}"
            )
        if self.parser is not None:
            named_parser(self.parser)
        own = self.think_tokens or self.system_prompt is not None or self.context is not None
        if self.agent is not None and own:
            raise ConfigError(
                f"agent={self.agent!r} makes its own prompts and requests: leave out "
                "system_prompt, context and think_tokens"
            )
        if self.algo != IN_PYTHON:
            check_options(self.algo, self.algo_options)

    @property
    def adapter_settings(self) -> dict[str, Any]:
        """Settings of the adapters beside their rank, those that are off left out."""
        named = {
            "alpha": self.lora_alpha,
            "targets": self.lora_targets,
            "rslora": self.rslora,
            "dora": self.dora,
        }
        return {n: value for n, value in named.items() if value is not None and value is not False}

    @property
    def mode(self) -> Literal["nothing", "lora", "full"]:
        """The part that learns: a model made from nothing, adapters, or all params of a model."""
        if self.model is None:
            return "nothing"
        return "lora" if self.lora_rank else "full"

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


IN_PYTHON = "in-python"
"""Name of an algorithm that was given as an object, which no file can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainEnv:
    """An environment that is learned from.

    id: registered with Gymnasium, or with PettingZoo for self-play; "module:id" imports the module.
    kwargs: its arguments. weight: its share of the tasks, relative to the other environments'.
    Raises ConfigError for a weight that is not above 0.
    """

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise ConfigError(f"{self.id} has the weight {self.weight}; it must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalTasks:
    """Held-out episodes that a policy is measured on.

    id: of the environment; that of the first one that is learned from if left out.
    kwargs: of the environment, such as {"split": "test"}.
    temperature: of sampling; 0 is greedy, and 1 measures the policy that is trained.
    """

    id: str = ""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    temperature: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrator:
    """Player of the episodes that are imitated first, in the environments that are learned from.

    policy: "oracle" plays as well as the environment knows, "random" any legal action.
    kwargs: further arguments of the environments, such as {"opponent": "random"}.
    reply: text of the model for an action, such as "<answer>{}</answer>"; "{}" is replaced by the
        action.
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
    """A training, as data: what is learned and measured, and the settings that suit it.

    name: of the command, `ludic train NAME`. summary: what is learned, as a phrase for its help.
    defaults: settings that options of the command line replace.
    envs: environments that are learned from.
    evals: sets of evaluation tasks, by name, none of which is ever trained on.
    demonstrator: None for recipes that need a `model`.
    self_play: one model plays all agents of PettingZoo environments, and learns from each.
    curriculum: levels that environments move through; each level's arguments replace their own.
    outcomes: values of the last info's "outcome" whose shares an evaluation reports, beside
        the success rate and the mean reward.
    curves: metrics that are drawn.
    try_it: arguments of `ludic` to use the policy, with "{out}" for the run's folder.
    """

    name: str
    summary: str
    defaults: RunConfig
    envs: Sequence[TrainEnv]
    evals: Mapping[str, EvalTasks]
    demonstrator: Demonstrator | None = None
    self_play: bool = False
    curriculum: LevelSchedule | None = None
    outcomes: Sequence[str] = ()
    curves: Sequence[str]
    try_it: str

    def __post_init__(self) -> None:
        if not self.envs or not self.evals:
            raise ConfigError(f"the recipe {self.name} has no environment to learn from or measure")
        if self.curriculum is not None:
            _check_curriculum(self, self.curriculum)


def _check_curriculum(recipe: Recipe, schedule: LevelSchedule) -> None:
    """Raise ConfigError for levels that the recipe's environments cannot have."""
    ids = [env.id for env in recipe.envs]
    if recipe.self_play:
        raise ConfigError(
            "a curriculum moves by the success of one player: leave it out, or leave out self-play"
        )
    if not schedule.levels or (unknown := [i for i in schedule.levels if i not in ids]):
        raise ConfigError(
            f"the curriculum has levels of {unknown if schedule.levels else 'nothing'}, and the "
            f"environments that are learned from are {ids}"
        )
    for env in recipe.envs:
        for level in schedule.levels.get(env.id, ()):
            if both := sorted(level.keys() & env.kwargs.keys()):
                raise ConfigError(
                    f"{both[0]} of {env.id} is an argument of its levels: leave out "
                    f"{both[0]}={env.kwargs[both[0]]!r}, or the curriculum"
                )


def facts(recipe: Recipe) -> dict[str, Any]:
    """The recipe without its settings, as plain data."""
    return {name: value for name, value in asdict(recipe).items() if name != "defaults"}
