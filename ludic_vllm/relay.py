"""Chunks of params that processes fetch from each other over TCP, along a tree.

A process offers a chunk while it still receives it, so that a deep tree takes hardly longer than
one transfer. A process that fetches has several sources: if one is lost, it continues at the same
byte with the next. Both ends of a connection prove by HMAC that they know the trainer's secret,
which comes by the server's control routes; the params are not encrypted. It needs torch alone.

Order on a connection: nonce of the listener; nonce and proof of the caller; proof of the listener;
a JSON line of the caller. A `fetch` is followed by bytes, a `member` by a JSON line per chunk.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from torch import Tensor

Address = tuple[str, int]
# Session and number of a chunk.
Key = tuple[str, int]
NONCE, PROOF = 16, 32
# Bytes that are read and passed on at once.
PIECE = 2**20
# Longest JSON line in bytes.
LINE = 2**14
# Seconds to connect, and without a byte until another source is tried.
CONNECT_S, STALL_S = 5.0, 10.0


class Arriving:
    """A buffer, uint8 [bytes], that others can read as far as it is filled."""

    def __init__(self, buffer: Tensor, filled: int = 0) -> None:
        self.buffer, self.filled = buffer, filled
        self.view = buffer.numpy().data
        self._failed = False
        self._change = threading.Condition()

    @property
    def is_whole(self) -> bool:
        """True if all bytes are there."""
        return self.filled == len(self.view)

    def advance(self, count: int) -> None:
        """Note that the next `count` bytes have been written."""
        with self._change:
            self.filled += count
            self._change.notify_all()

    def fail(self) -> None:
        """End the wait of all readers, unless all bytes are there."""
        with self._change:
            self._failed = not self.is_whole
            self._change.notify_all()

    def after(self, start: int, timeout_s: float) -> memoryview:
        """At most PIECE bytes from `start` on, as soon as there are some.

        Raises OSError if none come: after a failure, or in time.
        """
        with self._change:
            self._change.wait_for(lambda: self.filled > start or self._failed, timeout_s)
            if self.filled <= start:
                raise OSError(f"byte {start} of {len(self.view)} did not arrive")
            return self.view[start : min(self.filled, start + PIECE)]


class Relay:
    """Offers chunks to other processes, and fetches them from others.

    secret: that all these processes know.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._offers: dict[Key, Arriving] = {}
        self._change = threading.Condition()
        self._listeners: list[socket.socket] = []
        self._connections: set[socket.socket] = set()
        # Sources that failed in a session are not tried again: each would cost STALL_S per chunk.
        self._lost: set[tuple[str, Address]] = set()

    def listen(self, host: str) -> int:
        """Serve on a free port of this address, in daemon threads; the port."""
        listener = socket.create_server((host, 0), backlog=1024)
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return int(listener.getsockname()[1])

    def close(self) -> None:
        """Stop serving, and drop all chunks."""
        self.drop()
        for listener in self._listeners:
            # Ends `accept` in the thread, which closing alone does not.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def offer(self, key: Key, arriving: Arriving) -> None:
        """Let others fetch this chunk."""
        with self._change:
            self._offers[key] = arriving
            self._change.notify_all()

    def drop(self) -> None:
        """Forget all chunks; those that still arrive fail for their readers."""
        with self._change:
            dropped, self._offers, self._lost = self._offers, {}, set()
        for arriving in dropped.values():
            arriving.fail()

    def fetch(
        self, key: Key, buffer: Tensor, sources: Sequence[Address], timeout_s: float
    ) -> Tensor:
        """The buffer, uint8 [bytes], filled with a chunk from the first source that has it.

        It is offered to others meanwhile, and until `drop`.
        timeout_s: longest time without a byte from the last source; the others get STALL_S.
        Raises RuntimeError with the reason of each source.
        """
        arriving = Arriving(buffer)
        self.offer(key, arriving)
        reasons = []
        try:
            for place, source in enumerate(sources, 1):
                if arriving.is_whole:
                    break
                if (key[0], source) in self._lost:
                    continue
                is_last = place == len(sources)
                patience_s = timeout_s if is_last else min(STALL_S, timeout_s)
                try:
                    self._read(source, key, arriving, patience_s)
                except OSError as error:
                    reasons.append(f"{source[0]}:{source[1]}: {error or type(error).__name__}")
                    # The last one is the trainer, tried for every chunk: there is no other.
                    if not is_last:
                        self._lost.add((key[0], source))
        finally:
            # Others that fetch this chunk from here must not wait for bytes that never come.
            arriving.fail()
        if not arriving.is_whole:
            raise RuntimeError(f"a chunk of params cannot be fetched from {', '.join(reasons)}")
        return buffer

    def _read(self, source: Address, key: Key, arriving: Arriving, patience_s: float) -> None:
        """Read the rest of a chunk from a source. Raises OSError."""
        request = {"kind": "fetch", "session": key[0], "index": key[1], "from": arriving.filled}
        with called(source, self._secret, request, min(CONNECT_S, patience_s)) as connection:
            connection.settimeout(patience_s)
            while not arriving.is_whole:
                start = arriving.filled
                count = connection.recv_into(arriving.view[start : start + PIECE])
                if not count:
                    raise ConnectionError("closed before the end")
                arriving.advance(count)

    def _accept(self, listener: socket.socket) -> None:
        """Serve each connection in a thread, until the listener is closed."""
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # A caller that is lost, or no caller of ours, costs nothing but its connection.
        with connection, suppress(OSError, ValueError, KeyError, TypeError):
            self._connections.add(connection)
            connection.settimeout(CONNECT_S)
            _prove_to_caller(connection, self._secret)
            request = read_line(connection)
            if request["kind"] == "fetch":
                self._send(connection, (request["session"], request["index"]), request["from"])
            else:
                self.greet(connection, request)
        self._connections.discard(connection)

    def greet(self, connection: socket.socket, request: dict[str, Any]) -> None:
        """Serve a caller that fetches nothing; a relay alone has no such callers."""

    def _send(self, connection: socket.socket, key: Key, start: int) -> None:
        """Send a chunk from a byte on, as its bytes arrive. Raises OSError."""
        connection.settimeout(STALL_S)
        with self._change:
            # The caller may have been told of the chunk before this process.
            self._change.wait_for(lambda: key in self._offers, STALL_S)
            arriving = self._offers.get(key)
        while arriving is not None and start < len(arriving.view):
            # Longer than any caller waits: it closes the connection then.
            piece = arriving.after(start, timeout_s=6 * STALL_S)
            connection.sendall(piece)
            start += len(piece)


@contextmanager
def called(
    address: Address, secret: bytes, request: dict[str, Any], timeout_s: float
) -> Iterator[socket.socket]:
    """A connection to a relay that has proven to know the secret, with the request sent.

    timeout_s: limit of each step. Raises OSError.
    """
    with socket.create_connection(address, timeout_s) as connection:
        theirs, own = read_exactly(connection, NONCE), secrets.token_bytes(NONCE)
        connection.sendall(own + _proof(secret, b"caller", theirs, own))
        found = read_exactly(connection, PROOF)
        if not hmac.compare_digest(found, _proof(secret, b"listener", theirs, own)):
            raise ConnectionError("it does not know the secret of this trainer")
        send_line(connection, request)
        yield connection


def send_line(connection: socket.socket, content: dict[str, Any]) -> None:
    """Send JSON in a line."""
    connection.sendall(json.dumps(content).encode() + b"\n")


def read_line(connection: socket.socket) -> dict[str, Any]:
    """The JSON object in the next line. Raises OSError at the end, ValueError for other bytes."""
    line = bytearray()
    # Byte by byte, because what follows is not part of it; lines are short and few.
    while (byte := read_exactly(connection, 1)) != b"\n":
        line += byte
        if len(line) > LINE:
            raise ValueError(f"a line is longer than {LINE} bytes")
    content = json.loads(line)
    if not isinstance(content, dict):
        raise ValueError(f"a line holds no object: {line[:100]!r}")
    return content


def read_exactly(connection: socket.socket, count: int) -> bytes:
    """The next bytes. Raises OSError if fewer come."""
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            raise ConnectionError("closed")
        found += more
    return found


def _prove_to_caller(connection: socket.socket, secret: bytes) -> None:
    """Exchange proofs with a caller. Raises ConnectionError for one without the secret."""
    own = secrets.token_bytes(NONCE)
    connection.sendall(own)
    theirs, found = read_exactly(connection, NONCE), read_exactly(connection, PROOF)
    if not hmac.compare_digest(found, _proof(secret, b"caller", own, theirs)):
        raise ConnectionError("the caller does not know the secret")
    connection.sendall(_proof(secret, b"listener", own, theirs))


def _proof(secret: bytes, role: bytes, listener_nonce: bytes, caller_nonce: bytes) -> bytes:
    """32 bytes that only processes with the secret can compute."""
    return hmac.digest(secret, role + listener_nonce + caller_nonce, "sha256")
