"""Channel to the grader: a line of JSON in, a line of JSON out, apart from the program's output.

The program's stdout goes to stderr, and its stdin is empty.
"""

import json
import os
import sys
from contextlib import AbstractContextManager
from typing import Any


class Channel:
    """The sandbox's own pipes, moved away from stdin and stdout.

    A program can still find and use them, since it shares the process. This prevents accidents, not
    attacks: the grader treats every reply as untrusted.
    """

    def __init__(self) -> None:
        """Move the pipes away, and tell the grader that the runner has started."""
        # Open as long as the process. A fork that has closed the pipes would warn of it at its end
        # if these objects owned them (from Python 3.13 on).
        self._requests = open(os.dup(0), "rb", closefd=False)  # noqa: SIM115
        self._replies = open(os.dup(1), "wb", closefd=False)  # noqa: SIM115
        # A program that reads or prints must not take requests, or write replies, by accident.
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        self.send(["started"])

    def receive(self) -> Any:  # noqa: ANN401 (JSON)
        """The next request; end the process if there is none any more."""
        line = self._requests.readline()
        if not line:
            leave()
        return json.loads(line)

    def send(self, reply: object) -> None:
        """Write a reply, after the output so far."""
        flush()
        self._replies.write(json.dumps(reply).encode() + b"\n")
        self._replies.flush()


def leave() -> None:
    """End this process after its output; no exit handler of a program runs."""
    flush()
    # `sys.exit` would run the program's `atexit` functions, which may print or hang.
    os._exit(0)


def flush() -> None:
    """Flush the output, unless the program has broken sys.stdout or sys.stderr."""
    with Caught():
        sys.stdout.flush()
        sys.stderr.flush()


class Caught(AbstractContextManager["Caught"]):
    """A block that runs untrusted code: holds what it raises, an exit or an interrupt too.

    error: the exception, None if the block ended without one.
    Nothing that a program raises may end its runner, which reports it.
    """

    error: BaseException | None = None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.error = error
        return True


def text_of(error: BaseException | None) -> str:
    """The error in a line, even if its class breaks `str`."""
    return f"{type(error).__name__}: {message_of(error)}"


def message_of(error: BaseException | None) -> str:
    """The error's message in 500 characters, even if its class breaks `str`."""
    with Caught():
        return str(error)[:500]
    return "an error without a message"
