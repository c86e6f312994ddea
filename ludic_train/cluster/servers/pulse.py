"""Servers that run and no longer respond: a stopped engine, a closed port, a deadlock."""

from __future__ import annotations

import re
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from ludic_train.runs.machine import LOST_S

# Seconds between two looks, and for one look: with LOST_S together at most 30. The engine
# responds between two decoding steps, but not during a swap.
LOOK_EVERY_S, LOOK_S = 2.0, 5.0
# Of the engine: vLLM's API server responds to /health while its engine process is stopped.
ROUTE = "/weight_info"


def responds(url: str) -> bool:
    """True if the engine of a server responds within LOOK_S seconds."""
    try:
        with urlopen(f"{url}{ROUTE}", timeout=LOOK_S) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


class Pulse:
    """Looks at a server that has responded once.

    lost_s: seconds without a response after which it is lost.
    """

    def __init__(self, url: str, *, lost_s: float = LOST_S) -> None:
        self._url, self._lost_s = url, lost_s
        self._seen = self._looked = time.monotonic()

    def is_lost(self) -> bool:
        """True if the server has not responded for `lost_s` seconds.

        Looks at it at most every LOOK_EVERY_S seconds, and blocks up to LOOK_S.
        """
        now = time.monotonic()
        # A limit below LOOK_EVERY_S needs looks as often as that.
        if now - self._looked < min(LOOK_EVERY_S, self._lost_s):
            return False
        if responds(self._url):
            # After the look, which may itself have taken LOOK_S seconds.
            self._seen = time.monotonic()
        self._looked = time.monotonic()
        return self._looked - self._seen > self._lost_s


# Of an access log, such as '"GET /health HTTP/1.1" 500 Internal Server Error'.
REQUEST = re.compile(r'HTTP/[\d.]+" \d{3}\b')


def last_error(log: Path) -> str:
    """The last line of a log that names an error, else its last line; "" for an empty log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    told = [line for line in lines if line.strip()]
    # What follows the error are lines of the shutdown, and of requests that fail for it.
    own = [line for line in told if not REQUEST.search(line)]
    named = [line for line in own if "Error" in line or "Killed" in line]
    # What vLLM's API server says for each request, after the error of the engine itself.
    causes = [line for line in named if "EngineDeadError" not in line]
    return (causes or named or told or [""])[-1].strip()
