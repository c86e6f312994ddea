"""A line of JSON in, a line of JSON out, on descriptors that the program's own text cannot mix up.

What is printed goes to stderr, what is read from stdin is empty.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any


class Channel:
    """The pipes that the sandbox began with, taken away from stdin and stdout."""

    def __init__(self) -> None:
        self._requests = open(os.dup(0), "rb")  # noqa: SIM115 (open as long as the process)
        self._replies = open(os.dup(1), "wb")  # noqa: SIM115
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)

    def receive(self) -> Any:  # noqa: ANN401 (JSON)
        """The next request. Leaves when there is none any more."""
        line = self._requests.readline()
        if not line:
            leave()
        return json.loads(line)

    def send(self, reply: object) -> None:
        """Write a reply, after what was printed so far."""
        flush()
        self._replies.write(json.dumps(reply).encode() + b"\n")
        self._replies.flush()


def leave() -> None:
    """End this process with what was printed; no exit handler of a program runs."""
    flush()
    os._exit(0)


def flush() -> None:
    """Write out what was printed, where a program has left something to write it with."""
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()


def text_of(error: BaseException) -> str:
    """The error in a line, whatever its class does when it is shown."""
    return f"{type(error).__name__}: {message_of(error)}"


def message_of(error: BaseException) -> str:
    """What the error says, whatever its class does when it is asked."""
    try:
        return str(error)[:500]
    except Exception:
        return "an error that cannot be shown"
