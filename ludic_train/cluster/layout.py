"""Cards of a machine dealt out to inference servers and to the ranks of the trainer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ludic_gym.errors import ConfigError

GIB = 2**30
# Share of a card that an inference server takes by default, as vLLM does.
SERVER_SHARE = 0.9
# Share of a card that CUDA, NCCL and fragments of freed memory take from a rank.
RANK_RESERVE = 0.08


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU. name: as in CUDA_VISIBLE_DEVICES. bytes: of its memory."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Memory that the roles of a run need.

    rank_bytes: bytes on the card of each rank, from the number of ranks.
    server_bytes: of a whole server: params and the least cache that is of use.
    heads: of attention, which tensor parallelism divides evenly.
    """

    rank_bytes: Callable[[int], float]
    server_bytes: float
    heads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCards:
    """Cards of one server. share: of each card's memory, vLLM's gpu_memory_utilization."""

    cards: tuple[str, ...]
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Cards of each server, and of the ranks, one card each."""

    servers: tuple[ServerCards, ...]
    ranks: tuple[str, ...]

    @property
    def shared(self) -> bool:
        """True if a card is a rank's and a server's."""
        return any(name in self.ranks for server in self.servers for name in server.cards)

    def __str__(self) -> str:
        lines = [f"ranks        {', '.join(self.ranks)}"]
        for number, server in enumerate(self.servers):
            parallel = f", tensor parallel {len(server.cards)}" if len(server.cards) > 1 else ""
            memory = f", {server.share:.0%} of its memory" if server.share < 1 else ""
            lines.append(f"server-{number:<6d}{', '.join(server.cards)}{parallel}{memory}")
        return "\n".join(lines)


def layout(
    cards: Sequence[Card], *, servers: int, need: Need, tensor_parallel: int | None = None
) -> Layout:
    """The last cards for servers, and one rank on each of the others; deterministic.

    servers: number of inference servers, 0 or more. tensor_parallel: cards of each; None takes the
    smallest power of two on which a server fits. One card is shared by a server and the only rank:
    the server gets what the rank's estimate leaves.
    Raises ConfigError where a role has no card, or does not fit into the memory of one.

    Four cards of 80 GB, a server that needs 20 GB, and 100 GB spread over the ranks:

    >>> cards = [Card(name=str(number), bytes=80 * 10**9) for number in range(4)]
    >>> need = Need(rank_bytes=lambda ranks: 100e9 / ranks, server_bytes=20e9, heads=16)
    >>> print(layout(cards, servers=1, need=need))
    ranks        0, 1, 2
    server-0     3, 90% of its memory
    """
    if not cards or len({card.name for card in cards}) < len(cards):
        raise ConfigError(f"cards={[card.name for card in cards]}; name each card once")
    if servers < 0:
        raise ConfigError(f"servers={servers}; it must be 0 or more")
    if len(cards) == servers == 1 and tensor_parallel in (None, 1):
        return _one_card(cards[0], need)
    width = _width(cards, servers, need, tensor_parallel) if servers else 0
    first = len(cards) - servers * width
    if first < 1:
        raise ConfigError(
            f"{servers} servers of {width} cards take all of {len(cards)} cards, and no rank is "
            "left to train: take fewer --servers, a smaller --tensor-parallel, or more --gpus"
        )
    _check_ranks(cards[:first], need)
    groups = [cards[i : i + width] for i in range(first, len(cards), width)] if servers else []
    return Layout(
        servers=tuple(
            ServerCards(cards=tuple(card.name for card in group), share=SERVER_SHARE)
            for group in groups
        ),
        ranks=tuple(card.name for card in cards[:first]),
    )


def _one_card(card: Card, need: Need) -> Layout:
    """A rank and a server on the same card, which split its memory."""
    free = (1 - RANK_RESERVE) * card.bytes - need.rank_bytes(1)
    # Rounded down: the last percent of a card would be taken twice. Never more than by default.
    share = min(SERVER_SHARE, math.floor(100 * free / card.bytes) / 100)
    if need.server_bytes > share * card.bytes:
        raise ConfigError(
            f"card {card.name} has {_gib(card.bytes)}, and a rank needs "
            f"{_gib(need.rank_bytes(1))} beside a server's {_gib(need.server_bytes)}: take "
            "--lora-rank 16, --adamw-bits 8, --offload, --engine local, or another card"
        )
    return Layout(servers=(ServerCards(cards=(card.name,), share=share),), ranks=(card.name,))


def _width(cards: Sequence[Card], servers: int, need: Need, given: int | None) -> int:
    """Cards of each server. Raises ConfigError for what cannot be divided, or does not fit."""
    if given is not None and (given < 1 or need.heads % given):
        raise ConfigError(
            f"tensor_parallel={given} must be at least 1 and divide the {need.heads} attention "
            "heads of the model"
        )
    # One card at least is a rank's, and a server needs one too where there are too few.
    most = max((len(cards) - 1) // servers, 1)
    widths = [given] if given else [w for w in _powers_of_two(most) if need.heads % w == 0]
    for width in widths:
        own = cards[max(len(cards) - servers * width, 0) :]
        if need.server_bytes / width <= SERVER_SHARE * min(card.bytes for card in own):
            return width
    raise ConfigError(
        f"a server needs {_gib(need.server_bytes)}, and {widths[-1]} of the cards have "
        f"{_gib(SERVER_SHARE * widths[-1] * min(card.bytes for card in cards))} for it: take "
        "fewer --servers, so that each has more cards, or a larger --tensor-parallel"
    )


def _powers_of_two(most: int) -> list[int]:
    """1, 2, 4 ... up to `most`, which is at least 1."""
    return [2**k for k in range(most.bit_length())]


def _check_ranks(cards: Sequence[Card], need: Need) -> None:
    """Raise ConfigError for a card on which the share of a rank does not fit."""
    needed = need.rank_bytes(len(cards))
    for card in cards:
        if needed > (1 - RANK_RESERVE) * card.bytes:
            raise ConfigError(
                f"each of {len(cards)} ranks needs {_gib(needed)}, and card {card.name} has "
                f"{_gib(card.bytes)}, of which {RANK_RESERVE:.0%} is kept free: take fewer "
                "--servers or more --gpus, --offload, --adamw-bits 8, or --lora-rank 16"
            )


def _gib(count: float) -> str:
    return f"{count / GIB:.1f} GiB"
