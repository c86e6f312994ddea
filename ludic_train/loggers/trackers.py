"""Loggers that hand the numbers of a run to a tracking service or its files.

Each needs a package of its own, which is imported when the logger is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from ludic_gym.errors import ConfigError
from ludic_gym.packages import install_command


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


def _imported(package: str, *, extra: str) -> ModuleType:
    """The module. Raises ConfigError with the extra to install where it is missing."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{package} is not installed: {install_command(f'ludic-gym[{extra}]')}, or leave its "
            "logger out"
        ) from error
