"""The loggers of a run: its file and the terminal, and those that --log names."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from ludic_train.distributed.ranks import rank
from ludic_train.loggers.console import ConsoleLogger
from ludic_train.loggers.loggers import JSONLLogger, Logger, MultiLogger
from ludic_train.loggers.trackers import TensorBoardLogger, TrackioLogger, WandbLogger
from ludic_train.runs.config import RunConfig
from ludic_train.runs.folder import METRICS
from ludic_train.runs.machine import Machine, Tracker

PROJECT = "ludic"


def run_logger(config: RunConfig, machine: Machine, updates: int) -> MultiLogger:
    """The file of a run, the terminal, and the trackers of `machine.log`, as one logger.

    On ranks other than 0 it logs nothing.
    updates: of the whole run. Raises ConfigError for a tracker that is not installed.
    """
    if rank() != 0:
        return MultiLogger()
    # Trackers first, whose package may be missing: then no other logger is left open.
    trackers = [_tracker(name, config) for name in machine.log]
    console = ConsoleLogger(updates, title=config.out.name, every=None)
    return MultiLogger(JSONLLogger(config.out / METRICS), console, *trackers)


def _tracker(name: Tracker, config: RunConfig) -> Logger:
    """A tracker that shows a run under its folder's name, and a resumed one as the same run."""
    settings: dict[str, Any] = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in config.flat().items()
    }
    # WANDB_MODE=offline and the like are the user's, through the services' own variables.
    name_and_id = f"{config.out.name}-{_id(config.out)}"
    if name == "wandb":
        where: dict[str, Any] = {"dir": str(config.out), "id": name_and_id}
        return WandbLogger(PROJECT, config=settings, name=name_and_id, resume="allow", **where)
    if name == "trackio":
        return TrackioLogger(PROJECT, config=settings, name=name_and_id, resume="allow")
    return TensorBoardLogger(config.out / "tensorboard")


def _id(out: Path) -> str:
    """The id of the run in the folder, made at the first request."""
    path = out / "tracker-id"
    if not path.exists():
        # Folders of different runs may have the same name.
        path.write_text(secrets.token_hex(4), encoding="ascii")
    return path.read_text(encoding="ascii")
