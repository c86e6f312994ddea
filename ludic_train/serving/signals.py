"""SIGINT and SIGTERM as an exception, so that what is open is closed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(BaseException):
    """SIGINT or SIGTERM came."""


@contextmanager
def stop_by_signal() -> Iterator[None]:
    """Both signals raise Stopped, once: while things are being closed, they wait.

    Who does not catch it gets a line, and KeyboardInterrupt.
    """

    def stop(signum: int, frame: object) -> None:
        for each in usual:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped

    usual = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for each in usual:
        signal.signal(each, stop)
    try:
        yield
    except Stopped:
        print("stopped before it was ready", file=sys.stderr)
        raise KeyboardInterrupt from None
    finally:
        for each, handler in usual.items():
            signal.signal(each, handler)
