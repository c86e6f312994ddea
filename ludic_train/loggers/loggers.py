"""Loggers for the numbers of a run: a file that is always complete, tracking services, or several.

Services need packages of their own, which are imported when the logger is made.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from ludic_gym.errors import ConfigError
from ludic_train.disk import write_all
from ludic_train.distributed.ranks import rank
from ludic_train.errors import MetricError

IMITATION = "imitation"
"""Metric: 1 in updates that imitate demonstrations, 0 in those from rewards of the same run."""


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


def imitated_until(records: Iterable[Mapping[str, float]]) -> int:
    """The last update that imitated demonstrations, by IMITATION; 0 without any."""
    return max((int(r["update"]) for r in records if r.get(IMITATION)), default=0)


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
        if self.path.exists():
            content = self.path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                os.truncate(self.path, whole)
        # Without a buffer, which would keep a line that the disk has refused.
        self._file = self.path.open("ab", buffering=0)

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Append one line. Raises MetricError for a metric called "update"."""
        if "update" in metrics:
            raise MetricError(f'"update" names the line, so no metric can: {dict(metrics)}')
        # Python would write NaN, which other readers of JSON refuse together with the whole line.
        numbers = {
            name: float(value) if math.isfinite(value) else str(float(value))
            for name, value in metrics.items()
        }
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
    # Lines that end; a writer that is running, or was killed, may leave half a one. Not by
    # splitlines(), which also splits at characters that a text in a line may hold.
    lines = Path(path).read_text(encoding="utf-8").split("\n")[:-1]
    # Later lines overwrite earlier ones, name by name: those of a resumed run come later.
    for number, line in enumerate(lines, start=1):
        try:
            record = {name: float(value) for name, value in json.loads(line).items()}
            updates.setdefault(int(record["update"]), {}).update(record)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise MetricError(f"{path}:{number} is no line of metrics: {line[:80]!r}") from error
    return [updates[update] for update in sorted(updates)]


class WandbLogger:
    """A run of Weights & Biases.

    config: the settings of the run, to be displayed with it. Keyword options go to `wandb.init`:
    `mode="offline"` keeps the run in `dir`, `id` and `resume` continue one.

        logger = WandbLogger("ludic", config=asdict(config), mode="offline")

    Raises ConfigError where the package is not installed, or starts no run.
    """

    package = "wandb"

    def __init__(
        self,
        project: str,
        *,
        config: Mapping[str, Any] | None = None,
        **options: Any,  # noqa: ANN401 - the service's own
    ) -> None:
        service = _imported(self.package, extra=self.package)
        try:
            self._run = service.init(project=project, config=dict(config or {}), **options)
        except Exception as error:
            # Each service has errors of its own: no key, no network, no space.
            raise ConfigError(
                f"{self.package} starts no run: {error}; mend this or leave --log out"
            ) from error

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Send the numbers of an update; the service drops those of an update before the last."""
        self._run.log(dict(metrics), step=update)

    def close(self) -> None:
        """Mark the run as finished."""
        self._run.finish()


class TrackioLogger(WandbLogger):
    """A run of Trackio, in a local database that `trackio show` reads.

    Trackio has the functions of wandb. config, options: as for `WandbLogger`; options go to
    `trackio.init`.
    """

    package = "trackio"


class TensorBoardLogger:
    """Event files in a folder, for `tensorboard --logdir`.

    folder: of one run; made where it does not exist.
    Raises ConfigError where tensorboard is not installed.
    """

    def __init__(self, folder: Path | str) -> None:
        # torch's module has an error of its own without it, which does not name the remedy.
        _imported("tensorboard", extra="tensorboard")
        writers = _imported("torch.utils.tensorboard", extra="tensorboard")
        self._writer = writers.SummaryWriter(str(folder))

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Write the numbers of an update; some seconds may pass before they are in the file."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, update)

    def close(self) -> None:
        """Write out what is buffered."""
        self._writer.close()


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
            try:
                call(logger)
            # Loggers are the user's code, so that any error may come.
            except Exception as error:
                self._loggers.remove(logger)
                # The stack of a full disk, or of a service that is away, tells nothing more.
                logging.getLogger(__name__).error(
                    "%s failed and gets no more metrics; training continues: %s: %s",
                    *(type(logger).__name__, type(error).__name__, error),
                    exc_info=None if isinstance(error, OSError) else error,
                )


def rank_0_logger(*makers: Callable[[], Logger]) -> MultiLogger:
    """Loggers that are made on rank 0, as one; on other ranks nothing is made and none is called.

    makers: functions and not loggers, because a logger opens its file or service when it is made.

    logger = rank_0_logger(partial(JSONLLogger, out / "metrics.jsonl"), lambda: ConsoleLogger(9))
    """
    return MultiLogger(*(make() for make in makers if rank() == 0))


def _imported(package: str, *, extra: str) -> ModuleType:
    """The module. Raises ConfigError with the extra to install where it is missing."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{package} is not installed: pip install 'ludic-gym[{extra}]', or leave its logger out"
        ) from error
