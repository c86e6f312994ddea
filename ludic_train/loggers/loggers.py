"""Loggers for the numbers of a run: a file that is always complete, or several loggers at once."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol

from ludic_train.disk import write_all
from ludic_train.distributed.ranks import rank
from ludic_train.errors import MetricError


class Logger(Protocol):
    """Takes the numbers of each update.

    A class of yours needs these two methods and no base class:

        class Printed:
            def log(self, update, metrics):
                print(update, metrics["reward"])

            def close(self):
                pass
    """

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Record numbers of an update; several calls for one update add names to it.

        update: ascending, but for a resumed run, which repeats those after its checkpoint.
        metrics: numbers by name, "family/name" for one of several; may be nan or infinite.
        """

    def close(self) -> None:
        """Give back what is held; nothing is logged afterwards."""


class JSONLLogger:
    """One JSON object per line, `{"update": 3, "reward": 0.5, ...}`, flushed line by line.

    Appends, so a resumed run continues its file; the torn last line of a killed one is cut off.
    JSON has no nan and no infinity: they are written as the strings "nan", "inf" and "-inf", which
    `read_metrics` and float() understand.

    path: its folder is made. Raises OSError for a file that cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     logger = JSONLLogger(Path(folder, "metrics.jsonl"))
    ...     logger.log(1, {"reward": 0.5, "loss": math.nan})
    ...     logger.close()
    ...     print(logger.path.read_text().strip())
    {"update": 1, "reward": 0.5, "loss": "nan"}
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Before the first line is appended, which would otherwise continue the torn one.
        _cut_torn_line(self.path)
        # Without a buffer, which would keep a line that the disk has refused.
        self._file = self.path.open("ab", buffering=0)

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Append one line. Raises MetricError for a metric called "update"."""
        if "update" in metrics:
            raise MetricError(f'"update" names the line, so no metric can: {dict(metrics)}')
        numbers = {name: _json_number(value) for name, value in metrics.items()}
        write_all(self._file, f"{json.dumps({'update': update, **numbers})}\n".encode())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path | str) -> list[dict[str, float]]:
    """Records of a JSONLLogger, one dict per update, ascending, with "update" among its names.

    Where a run was resumed from before its last update, the later numbers of an update count.
    Raises MetricError for a line that is not such an object; a torn last line is left out.

    A run that was resumed after update 1, and made update 2 again:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     logger = JSONLLogger(Path(folder, "metrics.jsonl"))
    ...     for update, reward in ((1, 0.2), (2, 0.3), (2, 0.4)):
    ...         logger.log(update, {"reward": reward})
    ...     logger.close()
    ...     read_metrics(logger.path)
    [{'update': 1.0, 'reward': 0.2}, {'update': 2.0, 'reward': 0.4}]
    """
    updates: dict[int, dict[str, float]] = {}
    # Later lines overwrite earlier ones, name by name: those of a resumed run come later.
    for number, line in enumerate(_whole_lines(Path(path)), start=1):
        try:
            record = {name: float(value) for name, value in json.loads(line).items()}
            updates.setdefault(int(record["update"]), {}).update(record)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise MetricError(f"{path}:{number} is no line of metrics: {line[:80]!r}") from error
    return [updates[update] for update in sorted(updates)]


class MultiLogger:
    """Several loggers as one; one that fails is reported, left out from then on, and no more.

    A full disk or a lost connection must not end a run that has cost hours.

        logger = MultiLogger(JSONLLogger("runs/a/metrics.jsonl"), WandbLogger("project"))
    """

    def __init__(self, *loggers: Logger) -> None:
        self._loggers = list(loggers)

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Log to all that work."""
        self._each(lambda logger: logger.log(update, metrics))

    def close(self) -> None:
        """Close all that work."""
        self._each(lambda logger: logger.close())

    def _each(self, call: Callable[[Logger], None]) -> None:
        # A copy, because a logger that fails is removed meanwhile.
        for logger in tuple(self._loggers):
            with ExitStack() as stack:
                stack.push(partial(self._leave_out, logger))
                call(logger)

    def _leave_out(
        self,
        logger: Logger,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Report the error of a logger and use it no more; True if there was one."""
        # Loggers are the user's code, so that any error may come; Ctrl-C is none of theirs.
        if not isinstance(error, Exception):
            return False
        self._loggers.remove(logger)
        log, name = logging.getLogger(__name__), type(logger).__name__
        # The stack of a disk that is full, or of a service that is away, tells nothing more.
        trace_of = None if isinstance(error, OSError) else error
        log.error(
            "%s failed and gets no more metrics; training continues: %s: %s",
            *(name, type(error).__name__, error),
            exc_info=trace_of,
        )
        return True


def rank_0_logger(*makers: Callable[[], Logger]) -> MultiLogger:
    """Loggers that are made on rank 0, as one; on other ranks nothing is made and none is called.

    makers: functions and not loggers, because a logger opens its file or service when it is made.

    logger = rank_0_logger(partial(JSONLLogger, out / "metrics.jsonl"), lambda: ConsoleLogger(9))
    """
    return MultiLogger(*(make() for make in makers if rank() == 0))


def _json_number(value: float) -> float | str:
    """The number, or its text where JSON has no number for it."""
    # Python would write NaN, which other readers of JSON refuse together with the whole line.
    return float(value) if math.isfinite(value) else str(float(value))


def _whole_lines(path: Path) -> list[str]:
    """Lines that end; a writer that is running, or was killed, may leave half a one."""
    # Not splitlines(), which also splits at characters that a text in a line may hold.
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def _cut_torn_line(path: Path) -> None:
    """Remove what follows the last line end."""
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with path.open("r+b") as file:
                file.truncate(whole)
