"""A run's folder: the config it was started with, and whether it may be started or gone on with."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ludic_gym.errors import ConfigError

C = TypeVar("C")


def open_run(config: C, out: Path, *, resume: bool) -> C:
    """The config to train with, written to `out`/config.json when the run is new.

    A resumed run takes the config it was started with. Raises ConfigError where `out` already
    holds a run that is not to be resumed, holds none that could be, or was started with other
    values than are given now.
    """
    path = out / "config.json"
    if not resume:
        if path.exists():
            raise ConfigError(f"{out} holds a run already: add --resume to go on, or change --out")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_as_json(config), indent=2) + "\n", encoding="utf-8")
        return config
    if not path.exists():
        raise ConfigError(f"there is no run to resume in {out}: {path} does not exist")
    started = json.loads(path.read_text(encoding="utf-8"))
    return _reconciled(config, started, path)


def _reconciled(config: C, started: Mapping[str, Any], path: Path) -> C:
    """`config` with the values of `started`; what was set to something else now is refused."""
    fields = {f.name: f for f in dataclasses.fields(config)}  # type: ignore[arg-type]
    given = _as_json(config)
    defaults = _as_json(type(config)())
    clash = [
        f"{name} was {started.get(name)!r} and is now {given[name]!r}"
        for name in fields
        if name != "out" and given[name] not in (started.get(name), defaults[name])
    ]
    if clash or set(started) != set(fields):
        raise ConfigError(
            f"{path} does not fit: {'; '.join(clash) or 'its fields are of another version'}; "
            "resume with the options the run was started with, or start a new run"
        )
    kept = {name: value for name, value in started.items() if name != "out"}
    return dataclasses.replace(config, **kept)  # type: ignore[type-var]


def _as_json(config: object) -> dict[str, Any]:
    values = dataclasses.asdict(config)  # type: ignore[call-overload]
    return {
        name: str(value) if isinstance(value, Path) else value for name, value in values.items()
    }
