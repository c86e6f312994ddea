"""What other packages add to Ludic: objects behind entry points, loaded when they are used."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ludic_gym.errors import ConfigError

OWN_PACKAGES = ("envs_registry", "ludic_gym", "ludic_train")


def find_plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name; nothing is loaded yet."""
    return {point.name: point for point in entry_points(group=group)}


def load_plugin(point: EntryPoint) -> Any:  # noqa: ANN401 - the group says what it is
    """The object behind an entry point.

    Raises ConfigError with the command that installs what is missing, where something is.
    """
    try:
        return point.load()
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in OWN_PACKAGES:
            raise
        raise ConfigError(
            f"{point.name!r} needs {missing}, which is not installed: "
            "pip install 'ludic-gym[train]'"
        ) from error
