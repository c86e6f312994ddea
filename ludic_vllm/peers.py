"""Processes that send and receive params, as they describe themselves. It needs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A process that sends or receives params.

    host: of the machine or container, as no other has. card: UUID of its card; "" for none.
    nccl: version of torch's NCCL, such as (2, 27, 3); () without.
    """

    host: str
    card: str = ""
    nccl: tuple[int, ...] = ()


def peer_fields(peer: Peer) -> dict[str, Any]:
    """The peer as JSON."""
    return asdict(peer) | {"nccl": list(peer.nccl)}


def peer_of(fields: Mapping[str, Any]) -> Peer:
    """The peer of `peer_fields`. Raises KeyError, TypeError or ValueError for anything else."""
    nccl = tuple(int(part) for part in fields["nccl"])
    return Peer(host=str(fields["host"]), card=str(fields["card"]), nccl=nccl)
