"""The tree along which params go from a trainer to many servers."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from ludic_vllm.relay import Address

# Machines that fetch from the trainer, and from each machine. Each copy of the params takes its
# share of an uplink, and each level hardly any time, as chunks are passed on while they arrive:
# `benchmarks/push_tree.py` finds a chain to be fastest.
FAN_OUT = 1
# Ancestors that a worker knows beside the trainer.
KNOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A worker in the network. address: of its relay. trainer: that of the trainer, as it sees it.

    The hosts are IP addresses.
    """

    address: Address
    trainer: Address


def tree_sources(places: Mapping[int, Place], fan_out: int) -> dict[int, list[Address]]:
    """For each worker, the addresses to fetch from: its parent first, the trainer last.

    places: of all workers, by number. fan_out: as FAN_OUT, at least 1.
    The first worker of each machine is its head; the heads form a tree in their order, of the least
    depth, and the others fetch from their head. The trainer is the head of its own machine.
    Between them are ancestors of the worker, KNOWN with the parent, which have all that it has.
    """
    parents: dict[int, int | None] = {}
    # Apart, because an address of the loopback interface is of no use on another machine.
    for is_local in (True, False):
        parents |= _parents({n: p for n, p in places.items() if _is_local(p) is is_local}, fan_out)

    def ancestors(number: int) -> Iterable[Address]:
        parent = parents[number]
        while parent is not None:
            yield places[parent].address
            parent = parents[parent]

    return {n: [*islice(ancestors(n), KNOWN), place.trainer] for n, place in places.items()}


def _parents(places: Mapping[int, Place], fan_out: int) -> dict[int, int | None]:
    """Number of the parent of each worker; None for those that fetch from the trainer."""
    heads: dict[str, int] = {}
    parents: dict[int, int | None] = {}
    for number, place in places.items():
        host = place.address[0]
        if host == place.trainer[0]:
            parents[number] = None
        elif host in heads:
            parents[number] = heads[host]
        else:
            order, i = list(heads.values()), len(heads)
            # The trainer's children are 0 to fan_out - 1, those of head i follow in blocks.
            parents[number] = None if i < fan_out else order[i // fan_out - 1]
            heads[host] = number
    return parents


def _is_local(place: Place) -> bool:
    return ipaddress.ip_address(place.address[0]).is_loopback
