"""The transport of params that suits a trainer and its servers, where none is given."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from shutil import disk_usage
from typing import Literal

import torch
from torch import nn

from ludic_train.cluster.publish.cards import GroupWire, IpcWire
from ludic_train.cluster.publish.tcp import TcpWire
from ludic_train.cluster.publish.transports import SHARED_MEMORY, FileWire, Wire
from ludic_vllm.peers import Peer

Transport = Literal["ipc", "nccl", "files", "tcp"]
CARDS = ("ipc", "nccl")
NAMES = {"ipc": "CUDA IPC", "nccl": "NCCL", "files": "shared memory", "tcp": "TCP"}
ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


@dataclass(frozen=True, slots=True)
class Choice:
    """A transport. reason: that against one between cards; "" if it is one, or there are none."""

    transport: Transport
    reason: str = ""

    def describe(self) -> str:
        """One line about it."""
        because = f", and not between cards: {self.reason}" if self.reason else ""
        return f"params go to the servers by {NAMES[self.transport]}{because}"


def chosen(
    own: Peer,
    workers: Mapping[str, Sequence[Peer] | None],
    *,
    has_room: bool,
    refused: str = "",
) -> Choice:
    """The fastest transport that all servers can take.

    own: the process that sends, with the card that params are on. workers: those of each server;
    None for a server that does not say. has_room: True if shared memory holds all params.
    refused: the failure of an attempt between cards; "" before one.
    """
    known = list(chain.from_iterable(peers or () for peers in workers.values()))
    silent = [url for url, peers in workers.items() if not peers]
    if silent or not known:
        # Another engine, or an older one, takes params into memory of its host.
        return Choice("tcp")
    host: Transport = "files" if has_room and all(p.host == own.host for p in known) else "tcp"
    if not own.card:
        held = any(peer.card for peer in known)
        return Choice(host, "this process sends from the memory of its host" if held else "")
    if refused:
        return Choice(host, refused)
    if all(peer.card == own.card and peer.host == own.host for peer in known):
        reason = _no_handles()
        return Choice(host, reason) if reason else Choice("ipc")
    for url, peers in workers.items():
        if reason := _no_nccl(own, peers or ()):
            return Choice(host, f"{url} {reason}")
    return Choice("nccl")


def wire_of(choice: Choice, device: torch.device) -> Wire:
    """The wire of a transport. device: the card that params are sent from, if there is one."""
    match choice.transport:
        case "ipc":
            return IpcWire(device)
        case "nccl":
            return GroupWire(device)
        case "files":
            return FileWire()
    return TcpWire()


def has_room(model: nn.Module | None, reserve: int) -> bool:
    """True if shared memory has room for all params and `reserve` bytes, often not in containers.

    model: None, of unknown size, has none.
    """
    if model is None or not SHARED_MEMORY.is_dir():
        return False
    return disk_usage(SHARED_MEMORY).free > reserve + sum(p.nbytes for p in model.parameters())


def _no_nccl(own: Peer, workers: Sequence[Peer]) -> str:
    """The reason for which a server's workers cannot join a group of NCCL; "" for none."""
    if not all(peer.card for peer in workers):
        return "takes params into the memory of its host"
    if any(peer.card == own.card for peer in workers):
        return "shares the card of this process, which NCCL refuses"
    if len(workers) > 1:
        return (
            f"spreads its model over {len(workers)} cards, whose own operations of NCCL could wait "
            "for this process"
        )
    if workers[0].nccl != own.nccl:
        theirs, ours = (".".join(map(str, p.nccl)) or "none" for p in (workers[0], own))
        return f"has NCCL {theirs}, and this process {ours}"
    return ""


def _no_handles() -> str:
    """The reason for which this process's memory has no handles for others; "" for none."""
    for name in ALLOCATOR:
        if "expandable_segments:True" in os.environ.get(name, ""):
            return f"{name} has expandable_segments, whose memory has no handles"
    return ""
