"""Where a run computes: settings that play no part in what is learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal
from urllib.parse import urlsplit

import tyro

from ludic_gym.errors import ConfigError
from ludic_gym.limits import RequestLimits
from ludic_train.queue_urls import FILE, REDIS, refuse_password

LOCAL, VLLM, JOIN = "local", "vllm", "join"
# Seconds without a response after which a server is lost.
LOST_S = 20.0
Implementation = Literal[
    "auto", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "eager"
]
Tracker = Literal["wandb", "trackio", "tensorboard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a run computes; a resumed run may have other values.

    Raises ConfigError for an engine that is neither "local", "vllm", "join" nor http addresses, for
    "join" without a queue, for a URL that names no queue, for `exact` with another engine than the
    local one, and for an attention beside `exact` or `context_parallel`, which have their own.
    """

    device: str = "auto"
    """Where the model is: auto, cpu, cuda, or a card such as cuda:1. "auto" is a CUDA card where
    there is one; each of several ranks has its own."""
    offload: bool = False
    """Keep params, gradients and moments in the memory of the host, and a block at a time on the
    card: slower, and for models that fit on no card."""
    recompute: bool = False
    """Compute the activations of an update again in its backward pass, and keep few of them: a
    fraction of the memory, a third more computation (`ludic train --plan --recompute`)."""
    micro_tokens: int | None = None
    """Tokens of a forward pass of updates: fewer take less memory, for the same results, and
    rollouts with more tokens are left out. Without it 4,096 on a CPU and 16,384 on a card, or those
    of the longest rollout."""
    replicas: int = 1
    """Copies of the model, each sharded over neighbouring ranks, such as those of one machine, so
    that only gradients travel between machines (HSDP)."""
    context_parallel: int = 1
    """Neighbouring ranks that compute each row together, a part of its tokens each, for rows that
    are too long for one; divides the ranks."""
    attention: Implementation = "auto"
    """Attention of updates: "sdpa", "flex_attention", "eager" of torch, or "flash_attention_2" and
    "flash_attention_3" of flash-attn; "auto" is flash-attn where it is installed, in bf16 on a
    card, and otherwise the model's own, mostly sdpa."""
    engine: tuple[str, ...] = (LOCAL,)
    """The sampler: "local", "vllm", or addresses of servers (`ludic serve`). They serve --model,
    or with --queue the model that the run leaves in OUT/published. "vllm" starts a server on this
    machine, starts it again where it ends, and stops it. "join", alone or beside addresses, lets
    servers come and go (`ludic serve ... --join OUT`)."""
    vllm_python: str | None = None
    """The Python that has vLLM, for --engine vllm; without it, the one that runs this, or that of
    the command `vllm`."""
    lost_after: float = LOST_S
    """Seconds without a response after which a server that the run has started counts as lost, and
    is started again; longer than a swap of params takes, during which none responds."""
    exact: bool = False
    """Have the local engine compute the very log-probs of the trainer, to the bit, so that
    importance ratios are exactly 1 before the first update. Llama and Qwen3 models, in float32 on
    one thread of a CPU; sampling takes two to four times as long."""
    queue: str | None = None
    """Let actors play (`ludic launch --only actor`), through the queue at this URL. The password of
    a Redis is taken from LUDIC_QUEUE_PASSWORD."""
    log: tuple[Tracker, ...] = ()
    """Services or files that get the numbers too, beside OUT/metrics.jsonl."""
    record: float = 1.0
    """Share of the tasks whose episodes are kept in OUT/rollouts, always of the same tasks: 1 for
    all, 0 for none (`ludic view OUT`)."""
    record_gb: float = 4.0
    """Gigabytes that they may take, compressed; the oldest are dropped first."""
    limits: Annotated[RequestLimits, tyro.conf.arg(name="")] = field(default_factory=RequestLimits)
    """Of requests to servers."""

    def __post_init__(self) -> None:
        refuse_password(self.queue)
        # Opened after demonstrations and supervised updates, which take minutes.
        if self.queue is not None and not _is_address(self.queue, (*REDIS, FILE)):
            raise ConfigError(
                f"{self.queue!r} names no queue; write redis://HOST:PORT, or file://PATH"
            )
        if not self.lost_after > 0:
            raise ConfigError(f"lost_after={self.lost_after} s; it must be positive")
        if self.micro_tokens is not None and self.micro_tokens < 1:
            raise ConfigError(f"micro_tokens={self.micro_tokens}; it must be at least 1")
        if self.context_parallel < 1:
            raise ConfigError(f"context_parallel={self.context_parallel}; it must be at least 1")
        if self.vllm_python is not None and not self.starts_vllm:
            raise ConfigError(
                f"vllm_python={self.vllm_python!r} is for engine=vllm, and engine="
                f"{' '.join(self.engine) or '()'}"
            )
        if self.exact and (not self.samples_here or self.queue is not None):
            raise ConfigError(
                "exact is for the local engine of one process: take --engine local without "
                "--queue; vLLM on a GPU has VLLM_BATCH_INVARIANT=1"
            )
        if self.attention != "auto" and (self.exact or self.context_parallel > 1):
            raise ConfigError(
                f"attention={self.attention} with exact or context_parallel, which attend by "
                "operations of their own: leave it out"
            )
        if self.engine in ((LOCAL,), (VLLM,)):
            return
        are_addresses = [u == JOIN or _is_address(u, ("http://", "https://")) for u in self.engine]
        if not are_addresses or not all(are_addresses):
            raise ConfigError(
                f"engine={' '.join(self.engine) or '()'}: it is local, vllm, join, or addresses of "
                "servers, which begin with http:// or https://"
            )
        if JOIN in self.engine and self.queue is None:
            raise ConfigError("engine=join without a queue: servers join by the queue's Redis")

    @property
    def samples_here(self) -> bool:
        """True if no server samples."""
        return self.engine == (LOCAL,)

    @property
    def starts_vllm(self) -> bool:
        """True if the run starts a server of its own."""
        return self.engine == (VLLM,)

    @property
    def servers(self) -> tuple[str, ...]:
        """Addresses of servers that run already, and JOIN if others may join."""
        return () if self.engine in ((LOCAL,), (VLLM,)) else self.engine


def _is_address(url: str, schemes: tuple[str, ...]) -> bool:
    """True for an address by one of the schemes, whose host and port can be read."""
    try:
        parts = urlsplit(url)
        return url.startswith(schemes) and parts.port != 0 and bool(parts.netloc or parts.path)
    except ValueError:
        # Of brackets that are not closed, and of ports that are no numbers.
        return False
