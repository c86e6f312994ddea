import importlib
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from ludic_gym.errors import ConfigError
from ludic_train.loggers import loggers

MAKERS = {
    "wandb": lambda: loggers.WandbLogger("ludic"),
    "trackio": lambda: loggers.TrackioLogger("ludic"),
    "tensorboard": lambda: loggers.TensorBoardLogger("runs"),
}


@pytest.mark.parametrize("package", MAKERS)
def test_a_missing_package_is_told_with_the_remedy(package, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(loggers, "import_module", missing)
    with pytest.raises(ConfigError, match=rf"{package} is not installed.*install .*\[{package}\]'"):
        MAKERS[package]()


def test_tensorboard_files_hold_the_numbers(tmp_path):
    logger = loggers.TensorBoardLogger(tmp_path)
    logger.log(3, {"reward": 0.5})
    logger.close()
    events = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    read = events.EventAccumulator(str(tmp_path))
    read.Reload()
    (event,) = read.Scalars("reward")
    assert (event.step, event.value) == (3, 0.5)


@pytest.mark.slow
def test_an_offline_run_of_wandb_is_written(tmp_path):
    logger = loggers.WandbLogger("ludic", config={"lr": 1.0}, mode="offline", dir=str(tmp_path))
    logger.log(1, {"reward": 0.5})
    logger.close()
    assert any(name.endswith(".wandb") for _, _, names in os.walk(tmp_path) for name in names)


def ran(program, **env):
    """Run the program in a process of its own: the services keep threads, and read their
    environment once."""
    words = [sys.executable, "-c", program]
    subprocess.run(words, env={**os.environ, **env}, check=True, timeout=180)


@pytest.mark.long
def test_a_run_of_trackio_is_written(tmp_path):
    program = (
        "from ludic_train.loggers.loggers import TrackioLogger\n"
        "logger = TrackioLogger('ludic', config={'lr': 1.0}, name='one')\n"
        "logger.log(1, {'reward': 0.5})\n"
        "logger.close()"
    )
    ran(program, TRACKIO_DIR=str(tmp_path), HF_HUB_OFFLINE="1")
    with closing(sqlite3.connect(tmp_path / "ludic.db")) as database:
        ((step, numbers),) = database.execute("select step, metrics from metrics").fetchall()
    assert step == 1
    assert "0.5" in str(numbers)


@pytest.mark.slow
def test_a_run_logs_to_the_trackers_that_are_named_and_continues_them(tmp_path):
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from ludic_train.runs.config import RunConfig\n"
        "from ludic_train.runs.machine import Machine\n"
        "from ludic_train.runs.run import run_logger\n"
        f"config = RunConfig(out=Path({str(tmp_path)!r}), model='m')\n"
        "for update in (1, 2):\n"
        "    logger = run_logger(config, Machine(log=('tensorboard', 'wandb')), 2)\n"
        "    logger.log(update, {'reward': update / 2})\n"
        "    logger.close()"
    )
    ran(program, WANDB_MODE="offline")
    events = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    read = events.EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    assert [(e.step, e.value) for e in read.Scalars("reward")] == [(1, 0.5), (2, 1.0)]
    run_id = f"{tmp_path.name}-{(tmp_path / 'tracker-id').read_text()}"
    assert {path.name for path in tmp_path.rglob("*.wandb")} == {f"run-{run_id}.wandb"}


def test_a_service_that_cannot_start_is_one_error(monkeypatch):
    class Service:
        @staticmethod
        def init(**options):
            raise RuntimeError("no API key configured")

    monkeypatch.setattr(loggers, "import_module", lambda name: Service)
    with pytest.raises(ConfigError, match="no API key"):
        loggers.WandbLogger("ludic")
