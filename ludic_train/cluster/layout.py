"""Cards of a machine dealt out to inference servers and to the ranks of the trainer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ludic_gym.errors import ConfigError
from ludic_train.runs.machine import VLLM

VISIBLE = "CUDA_VISIBLE_DEVICES"
# Begins the names of places that are processes on a CPU, and no cards.
CPU = "cpu:"
# Share of a card's memory that a server takes, as vLLM does, and of one that is a rank's too.
SERVER_SHARE, HALF_SHARE = 0.9, 0.4
# In a process of its own, because asking CUDA takes some of its memory.
COUNT = "import torch; print(torch.cuda.device_count())"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCards:
    """Cards of one server. share: of each card's memory, vLLM's gpu_memory_utilization."""

    cards: tuple[str, ...]
    share: float

    @property
    def vllm_flags(self) -> list[str]:
        """Flags of a vLLM on these cards; none on a CPU."""
        if self.cards[0].startswith(CPU):
            return []
        return [
            *("--tensor-parallel-size", str(len(self.cards))),
            *("--gpu-memory-utilization", str(self.share)),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Cards of each server, and of the ranks, one card each."""

    servers: tuple[ServerCards, ...]
    ranks: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"ranks        {', '.join(self.ranks)}"]
        for number, server in enumerate(self.servers):
            parallel = f", tensor parallel {len(server.cards)}" if len(server.cards) > 1 else ""
            memory = f", {server.share:.0%} of its memory" if server.share < 1 else ""
            lines.append(f"server-{number:<6d}{', '.join(server.cards)}{parallel}{memory}")
        return "\n".join(lines)


def layout(cards: Sequence[str], *, servers: int, tensor_parallel: int = 1) -> Layout:
    """The last cards for servers, and one rank on each of the others.

    servers: number of inference servers, 0 or more. tensor_parallel: cards of each. One card is
    shared by a server and the only rank. Raises ConfigError where a role has no card.

    >>> print(layout(["0", "1", "2", "3"], servers=1))
    ranks        0, 1, 2
    server-0     3, 90% of its memory
    """
    if servers < 0 or tensor_parallel < 1:
        raise ConfigError(
            f"servers={servers} must be 0 or more, tensor_parallel={tensor_parallel} 1 or more"
        )
    if len(cards) == servers == tensor_parallel == 1:
        shared = ServerCards(cards=tuple(cards), share=HALF_SHARE)
        return Layout(servers=(shared,), ranks=tuple(cards))
    first = len(cards) - servers * tensor_parallel
    if first < 1:
        raise ConfigError(
            f"{servers} servers of {tensor_parallel} cards take all of {len(cards)} cards, and no "
            "rank is left to train: take fewer --servers, a smaller --tensor-parallel, or more "
            "--gpus"
        )
    starts = range(first, len(cards), tensor_parallel)
    groups = [tuple(cards[i : i + tensor_parallel]) for i in starts]
    return Layout(
        servers=tuple(ServerCards(cards=group, share=SERVER_SHARE) for group in groups),
        ranks=tuple(cards[:first]),
    )


def layout_of(
    env: Mapping[str, str],
    *,
    device: str,
    gpus: int,
    servers: int,
    engine: str,
    tensor_parallel: int | None,
) -> Layout:
    """The cards of a run's servers and ranks; on a CPU its processes, which need none.

    env: of this process. gpus: number of cards, or of processes. Raises ConfigError as `layout` and
    `visible_cards` do, and for tensor parallelism without vLLM.
    """
    if tensor_parallel not in (None, 1) and (engine != VLLM or device == "cpu"):
        raise ConfigError(
            f"tensor_parallel={tensor_parallel} is for --engine vllm on several cards; the engine "
            f"is {engine!r} and the device {device!r}"
        )
    if device == "cpu":
        places = layout([f"{CPU}{i}" for i in range(gpus)], servers=servers)
        return replace(places, servers=tuple(replace(each, share=1.0) for each in places.servers))
    return layout(visible_cards(gpus, env), servers=servers, tensor_parallel=tensor_parallel or 1)


def visible_cards(count: int, env: Mapping[str, str]) -> list[str]:
    """The first `count` cards that torch finds, by the user's CUDA_VISIBLE_DEVICES if it is set.

    env: of this process. Raises ConfigError where there are fewer.
    """
    answer = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, check=True)
    present = int(answer.stdout)
    if not 1 <= count <= present:
        raise ConfigError(
            f"gpus={count}, and torch finds {present} cards here ({VISIBLE}="
            f"{env.get(VISIBLE)!r}): take as many as there are, or --device cpu"
        )
    chosen = env.get(VISIBLE)
    names = chosen.split(",") if chosen else map(str, range(present))
    return [name.strip() for name in names][:count]


def cards_env(cards: Sequence[str]) -> dict[str, str]:
    """The variable by which a process sees these cards alone, and on a CPU none."""
    return {VISIBLE: ",".join(name for name in cards if not name.startswith(CPU))}
