"""A server's worker among those that receive params over TCP, and the trainer's list of them."""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ludic_vllm.relay import Address, Key, Relay, called, read_line, send_line

# Address that workers listen on, if it is set; the name is vLLM's.
HOST_VARIABLE = "VLLM_HOST_IP"
# Characters of an error that the trainer is told.
REASON = 2000


class Receiver:
    """Fetches chunks for a worker, offers them to other servers, and reports to the trainer.

    trainer: its address. secret: of its relay. member: number of this worker among all workers of
    all servers. host: address to listen on, which the other servers must reach; None takes
    HOST_VARIABLE, or the one from which this process reaches the trainer.
    timeout_s: limit in seconds of the connection, and for each byte.
    Raises OSError if the trainer cannot be reached, or does not know the secret.
    """

    def __init__(
        self,
        trainer: Address,
        secret: bytes,
        member: int,
        *,
        host: str | None = None,
        timeout_s: float,
    ) -> None:
        self._timeout_s = timeout_s
        self._relay = Relay(secret)
        own = host or os.environ.get(HOST_VARIABLE) or own_address(trainer)
        stack = ExitStack()
        stack.callback(self._relay.close)
        with stack:
            port = self._relay.listen(own)
            request = {"kind": "member", "member": member, "host": own, "port": port}
            call = called(trainer, secret, request, timeout_s)
            self._trainer = stack.enter_context(call)
            # Kept until this object is closed, or collected.
            self.close = weakref.finalize(self, stack.pop_all().close)

    def fetch(self, key: Key, buffer: Tensor, sources: Collection[Address]) -> Tensor:
        """The buffer, uint8 [bytes], with a chunk in it.

        Raises RuntimeError if no source has it.
        """
        return self._relay.fetch(key, buffer, list(sources), self._timeout_s)

    def report(self, key: Key, error: str = "") -> None:
        """Tell the trainer that a chunk has arrived whole, or why not. Raises OSError."""
        report = {"session": key[0], "index": key[1], "error": error[:REASON]}
        send_line(self._trainer, report)

    def drop(self) -> None:
        """Forget all chunks; processes that fetch one of them get it elsewhere."""
        self._relay.drop()


@dataclass(slots=True)
class Member:
    """A worker as the trainer knows it.

    address: of its relay. arrived: the newest chunk that it has. error: a chunk and the reason for
    which it did not arrive. is_lost: True once its connection has ended.
    """

    address: Address
    arrived: Key | None = None
    error: tuple[Key, str] | None = None
    is_lost: bool = False


@dataclass(slots=True)
class _Members:
    """All members by number, and the signal of a change."""

    by_number: dict[int, Member] = field(default_factory=dict)
    change: threading.Condition = field(default_factory=threading.Condition)


class Trainer(Relay):
    """The trainer's relay, which all workers of all servers report to."""

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        self._members = _Members()

    def members(self, numbers: Collection[int], timeout_s: float = 0.0) -> dict[int, Address]:
        """Addresses of these workers, those that are connected.

        timeout_s: longest wait in seconds for the last of them.
        """
        known, change = self._members.by_number, self._members.change
        with change:
            change.wait_for(lambda: all(n in known for n in numbers), timeout_s)
            there = {n: known[n] for n in numbers if n in known}
        return {n: member.address for n, member in there.items() if not member.is_lost}

    def wait(self, key: Key, numbers: Collection[int], timeout_s: float) -> None:
        """Return when these workers have the chunk.

        Raises RuntimeError for one that is lost, reports an error, or takes longer.
        """
        known, change = self._members.by_number, self._members.change

        def is_settled() -> bool:
            found = [known[n] for n in numbers]
            # One failure ends the wait for the others of the server.
            return any(_failure(m, key) for m in found) or all(m.arrived == key for m in found)

        with change:
            in_time = change.wait_for(is_settled, timeout_s)
            failures = [_failure(known[n], key) for n in numbers]
        for failure in filter(None, failures):
            raise RuntimeError(failure)
        if not in_time:
            raise RuntimeError(f"no end of chunk {key[1]} within {timeout_s:g} s")

    def greet(self, connection: socket.socket, request: dict[str, Any]) -> None:
        """Note a worker, and read its reports until its connection ends."""
        connection.settimeout(None)
        member = Member((str(request["host"]), int(request["port"])))
        members = self._members
        with members.change:
            members.by_number[int(request["member"])] = member
            members.change.notify_all()
        try:
            while True:
                report = read_line(connection)
                key = (str(report["session"]), int(report["index"]))
                with members.change:
                    if report["error"]:
                        member.error = (key, str(report["error"]))
                    else:
                        member.arrived = key
                    members.change.notify_all()
        finally:
            with members.change:
                member.is_lost = True
                members.change.notify_all()


def own_address(target: Address) -> str:
    """This machine's address as a process at another address sees it.

    Raises OSError if there is no route to it.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # No packet is sent: the kernel only chooses the address that it would send from.
        probe.connect(target)
        return str(probe.getsockname()[0])


def _failure(member: Member, key: Key) -> str:
    """The reason for which the chunk does not arrive; "" for none."""
    if member.error is not None and member.error[0] == key:
        return member.error[1]
    # Also after it arrived: without its process, the params are gone.
    return f"the connection of {member.address[0]}:{member.address[1]} is lost" * member.is_lost
