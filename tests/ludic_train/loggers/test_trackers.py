import importlib
import os
from importlib.util import find_spec

import pytest

from ludic_gym.errors import ConfigError
from ludic_train.loggers import trackers

MAKERS = {
    "wandb": lambda: trackers.WandbLogger("ludic"),
    "trackio": lambda: trackers.TrackioLogger("ludic"),
    "tensorboard": lambda: trackers.TensorBoardLogger("runs"),
}


@pytest.mark.parametrize("package", MAKERS)
def test_a_missing_package_is_told_with_the_remedy(package, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(trackers, "import_module", missing)
    with pytest.raises(ConfigError, match=rf"{package} is not installed.*ludic-gym\[{package}\]"):
        MAKERS[package]()


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_files_hold_the_numbers(tmp_path):
    logger = trackers.TensorBoardLogger(tmp_path)
    logger.log(3, {"reward": 0.5})
    logger.close()
    events = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    read = events.EventAccumulator(str(tmp_path))
    read.Reload()
    (event,) = read.Scalars("reward")
    assert (event.step, event.value) == (3, 0.5)


@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed")
def test_an_offline_run_of_wandb_is_written(tmp_path):
    logger = trackers.WandbLogger("ludic", config={"lr": 1.0}, mode="offline", dir=str(tmp_path))
    logger.log(1, {"reward": 0.5})
    logger.close()
    assert any(name.endswith(".wandb") for _, _, names in os.walk(tmp_path) for name in names)


@pytest.mark.skipif(find_spec("trackio") is None, reason="trackio is not installed")
def test_a_run_of_trackio_is_written():
    logger = trackers.TrackioLogger("ludic", config={"lr": 1.0})
    logger.log(1, {"reward": 0.5})
    logger.close()
