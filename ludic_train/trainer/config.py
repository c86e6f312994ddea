"""Settings of a trainer, checked where they are made."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from ludic_gym.errors import ConfigError

# Tokens of a forward pass. A CPU is up to a quarter slower where a pass outgrows its caches.
CPU_TOKENS, CARD_TOKENS = 4_096, 16_384
# From the share of a decay that is over, in [0, 1], to the share of the height that is left.
DecayShape = Callable[[float], float]


def linear(done: float) -> float:
    """A straight line: 1 - done. done: share of the decay that is over, in [0, 1]."""
    return 1 - done


def cosine(done: float) -> float:
    """Half a cosine: slow, fast, slow (Loshchilov & Hutter 2017, arXiv:1608.03983).

    >>> [round(cosine(done), 3) for done in (0.0, 0.25, 0.5, 1.0)]
    [1.0, 0.854, 0.5, 0.0]
    """
    return (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW:
    """Settings of the optimizer (Loshchilov & Hutter 2019, arXiv:1711.05101).

    betas: decay per update of the means of gradients and of their squares.
    eps: added to the root of the second. weight_decay: share of a param lost per unit of rate.
    Raises ConfigError for numbers that no step could be made with.
    """

    # 0.95 and not torch's 0.999: a run has few updates, and old gradients are of another policy.
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"AdamW.betas is {self.betas}; both must be in [0, 1)")
        if not 0 < self.eps < math.inf or not 0 <= self.weight_decay < math.inf:
            raise ConfigError(
                f"AdamW has eps={self.eps}, weight_decay={self.weight_decay}; the first must be "
                "positive, the second 0 or more, and both finite"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decay:
    """Fall of the learning rate: along `shape`, to `to` times its peak.

    Raises ConfigError for `to` outside [0, 1].

    >>> cfg = TrainerConfig(lr=1e-5, decay_updates=1_000, decay=Decay(shape=cosine, to=0.0))
    >>> cfg.learning_rate(500), cfg.learning_rate(1_000)
    (5e-06, 0.0)
    """

    shape: DecayShape = linear
    to: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.to <= 1:
            raise ConfigError(f"Decay.to is {self.to}; it is a share of the peak, in [0, 1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Settings of the computation that do not change its result.

    packing: rows may be shared by several items where padding would waste much.
    share_prompts: items of equal prompts may share a row in which the prompt is computed once; not
        without `packing`.
    context_parallel: ranks that compute each row together, a part of its tokens each, for rows that
        are too long for one; divides the number of ranks. `micro_token_budget` is then of these
        ranks together, and rows are not packed.
    entropy: updates compute entropies, for their metric and for losses that read them; where they
        are switched off, such losses raise LossError.
    attention: implementation of transformers that updates attend by, such as "flash_attention_2";
        None leaves the model's own.
    Raises ConfigError for a `context_parallel` below one.
    """

    packing: bool = True
    share_prompts: bool = True
    context_parallel: int = 1
    entropy: bool = True
    attention: str | None = None

    def __post_init__(self) -> None:
        if self.context_parallel < 1:
            raise ConfigError(f"context_parallel={self.context_parallel}; it must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """Limits at which training stops by itself.

    max_skipped: updates in a row that may be skipped because a gradient is not finite; the next
        one stops the run.
    max_kl_at_lag_0: nats per token between the sampler's log-probs and those of the very params
        it names as its own. Kernels and rounding make 1e-2 at most; more means other params.
        Beyond it, rows of the groups that exceed it are left out; where these are more than half,
        training stops. None never stops.
    """

    max_skipped: int = 2
    max_kl_at_lag_0: float | None = 0.2

    def __post_init__(self) -> None:
        if self.max_skipped < 0:
            raise ConfigError(f"max_skipped={self.max_skipped}; it must be 0 or more")
        if self.max_kl_at_lag_0 is not None and not self.max_kl_at_lag_0 > 0:
            raise ConfigError(f"max_kl_at_lag_0={self.max_kl_at_lag_0}; it must be > 0, or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerConfig:
    """Settings of a trainer's updates.

    device: where the model is moved, such as "cpu" or "cuda:0".
    lr: peak learning rate; it rises linearly over `warmup_updates` and, where `decay_updates` is
        given, falls until then as `decay` has it, such as Decay(shape=cosine, to=0.0).
    max_grad_norm: gradients with a larger global L2 norm are scaled down to it.
    minibatches: updates made from one pass over a batch, each on its own random part of the
        rollouts.
    epochs: passes over each batch.
    micro_token_budget: tokens of one forward pass, padding included; changes memory, not results.
        None for 4,096 on a CPU, where more is slower, and 16,384 on a card, or the longest row of
        an update.
    max_seq_len: rollouts that have a row with more tokens are dropped, with a warning at the first,
        and their rows counted.
    publish_every: updates between two publications of the params; the last of a call of `train` is
        published too.
    router_replay: tokens of a mixture go through the experts that they were sampled by (R3,
        arXiv:2510.11370), which the engine must report; without, through those of the own router.

    >>> cfg = TrainerConfig(minibatches=4, epochs=2, publish_every=8)
    >>> cfg.updates_per_batch, cfg.oldest_lag, cfg.token_budget(longest=900)
    (8, 14, 4096)
    """

    device: str = "cpu"
    lr: float = 1e-5
    warmup_updates: int = 0
    decay_updates: int | None = None
    decay: Decay = field(default_factory=Decay)
    adamw: AdamW = field(default_factory=AdamW)
    max_grad_norm: float = 1.0
    minibatches: int = 1
    epochs: int = 1
    micro_token_budget: int | None = None
    max_seq_len: int = 4_096
    publish_every: int = 1
    router_replay: bool = False
    execution: Execution = field(default_factory=Execution)
    guards: Guards = field(default_factory=Guards)
    seed: int = 0

    def __post_init__(self) -> None:
        positive = {
            "lr": self.lr,
            "max_grad_norm": self.max_grad_norm,
            "minibatches": self.minibatches,
            "epochs": self.epochs,
            "max_seq_len": self.max_seq_len,
            "publish_every": self.publish_every,
        }
        for name, value in positive.items():
            if not value > 0:
                raise ConfigError(f"{name}={value}; it must be greater than 0")
        # A norm without a limit is a setting, a rate without one the end of all params.
        if self.lr == math.inf:
            raise ConfigError(f"lr={self.lr}; it must be finite")
        if self.warmup_updates < 0 or (self.decay_updates is not None and self.decay_updates < 1):
            raise ConfigError(
                f"warmup_updates={self.warmup_updates}, decay_updates={self.decay_updates}; the "
                "first must be 0 or more, the second 1 or more, or None"
            )
        # Found here and not in the first update, which may come hours later.
        budget = self.micro_token_budget
        if budget is not None and self.max_seq_len > budget:
            raise ConfigError(
                f"max_seq_len={self.max_seq_len} exceeds micro_token_budget={budget}; a row must "
                "fit into a micro-batch"
            )
        if self.router_replay and self.execution.context_parallel > 1:
            raise ConfigError(
                f"router_replay with context_parallel={self.execution.context_parallel}: experts "
                "are replayed for whole rows; take context_parallel=1"
            )

    def token_budget(self, longest: int) -> int:
        """Tokens of one forward pass over rows of at most `longest` tokens."""
        if self.micro_token_budget is not None:
            return self.micro_token_budget
        usual = CPU_TOKENS if self.device.startswith("cpu") else CARD_TOKENS
        # By the rows that there are: what a row may have at most can be many times of that.
        return max(usual, longest)

    @property
    def updates_per_batch(self) -> int:
        """Updates made from one batch of many rollouts."""
        return self.epochs * self.minibatches

    @property
    def oldest_lag(self) -> int:
        """Updates by which the params of a row may lag when it is trained on, at best.

        The updates of one batch before its last, and those between two publications.
        """
        return self.updates_per_batch - 1 + self.publish_every - 1

    def learning_rate(self, done: int) -> float:
        """The rate of the update after `done` others.

        Warm-up and decay are factors of the peak `lr`; after `decay_updates` the rate stays.

        >>> cfg = TrainerConfig(lr=1e-4, warmup_updates=10, decay_updates=100, decay=Decay(to=0.5))
        >>> [f"{cfg.learning_rate(done):.1e}" for done in (0, 9, 50, 100, 500)]
        ['1.0e-05', '9.6e-05', '7.5e-05', '5.0e-05', '5.0e-05']
        """
        # done + 1, so that the first update already moves the params.
        rise = min(1.0, (done + 1) / self.warmup_updates) if self.warmup_updates else 1.0
        if self.decay_updates is None:
            return self.lr * rise
        # Clamped: a run may be longer than its decay.
        left = self.decay.shape(min(1.0, done / self.decay_updates))
        return self.lr * rise * (self.decay.to + (1 - self.decay.to) * left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Size of an update and of its parts.

    Attributes:
        tokens: Tokens of an update, prompts and completions of all rows together.
        micro_tokens: Tokens of one forward pass; memory grows with it, results do not change.
        row_tokens: Tokens of a row, which attention is quadratic in.
        sampled: Share of the tokens that was sampled; only these meet the vocabulary.
        world_size: Ranks (processes) that the model is sharded over.
    """

    tokens: int = 131_072
    micro_tokens: int = 16_384
    row_tokens: int = 2_048
    sampled: float = 0.5
    world_size: int = 1

    def __post_init__(self) -> None:
        if not 2 <= self.row_tokens <= self.micro_tokens <= self.tokens:
            raise ConfigError(
                f"row_tokens={self.row_tokens}, micro_tokens={self.micro_tokens}, "
                f"tokens={self.tokens}; each must fit into the next, and a row has at least 2"
            )
        if not 0 < self.sampled <= 1 or self.world_size < 1:
            raise ConfigError(
                f"sampled={self.sampled}, world_size={self.world_size}; the first is in (0, 1], "
                "the second at least 1"
            )
