"""A run's folder: the config it was started with, and whether it may be started or resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludic_gym.errors import ConfigError

if TYPE_CHECKING:
    from ludic_train.recipes.recipe import RecipeConfig


def open_run(config: RecipeConfig, defaults: RecipeConfig, *, resume: bool) -> RecipeConfig:
    """The config to train with; a new run writes it to config.json, a resumed one reads it there.

    Raises ConfigError where the folder already holds a run that is not to be resumed, where it
    holds none to resume, and where a resumed run is given other values than it was started with.
    """
    path = config.out / "config.json"
    if resume:
        return _resumed(config, defaults, path)
    if path.exists():
        raise ConfigError(
            f"{config.out} holds a run already: add --resume to go on with it, or name another "
            "folder with --out"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_plain(config), indent=2) + "\n", encoding="utf-8")
    return config


def _resumed(config: RecipeConfig, defaults: RecipeConfig, path: Path) -> RecipeConfig:
    if not path.is_file():
        raise ConfigError(f"there is no run to resume in {config.out}: {path} does not exist")
    started = json.loads(path.read_text(encoding="utf-8"))
    given, usual = _plain(config), _plain(defaults)
    if started.keys() != given.keys():
        raise ConfigError(f"{path} was written by another version: its fields are {list(started)}")
    changed = {
        name: value
        for name, value in given.items()
        if name != "out" and value not in (started[name], usual[name])
    }
    if changed:
        raise ConfigError(
            f"the run in {config.out} was started with { ({n: started[n] for n in changed}) }, and "
            f"now {changed} is asked for; leave these out to resume, or start a new run"
        )
    return replace(config, **{name: v for name, v in started.items() if name != "out"})


def _plain(config: RecipeConfig) -> Mapping[str, Any]:
    return {name: str(v) if isinstance(v, Path) else v for name, v in asdict(config).items()}
