"""Recipes in TOML: those of `ludic train NAME`, of --config, and of each run's config.toml.

    envs = ["ludic/Countdown-v0"]      # or [[envs]] tables with id, kwargs and weight
    model = "Qwen/Qwen2.5-0.5B-Instruct"

    [learn]
    updates = 100

The names are those of the options of `ludic train`, with "_" or "-". Settings are in the tables
[tune], [learn], [sample], [harness], [evaluate] and [machine], where a run writes them; as options
and arguments of `lt.train` have no tables, settings may stand outside of them too. Other tables:
[[envs]], [evals.NAME] (id, kwargs, temperature), [demonstrator] (policy, reply), [algo_options],
[curriculum] (levels, raise_at, lower_at, window, easier).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from ludic_gym.errors import ConfigError
from ludic_train.runs.config import PARTS, SETTINGS, RunConfig, check_names
from ludic_train.runs.machine import Machine
from ludic_train.runs.recipe import (
    Demonstrator,
    EvalTasks,
    Recipe,
    TrainEnv,
    facts,
    named_env,
    recipe_for,
)
from ludic_train.sources.levels import LevelSchedule

T = TypeVar("T")

MACHINE = [field.name for field in fields(Machine)]
FACTS = [field.name for field in fields(Recipe) if field.name != "defaults"]


def read_recipe(path: Path | str, *, out: Path | str | None = None) -> tuple[Recipe, Machine]:
    """The recipe in a TOML file, and where it is to run.

    out: folder of the run, in place of the file's.
    Raises ConfigError for a file that cannot be read, with its place; for unknown names, with a
    suggestion; and for values of another type.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the config {path}: {error.strerror}") from error
    try:
        return parse_recipe(text, out=out)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_recipe(text: str, *, out: Path | str | None = None) -> tuple[Recipe, Machine]:
    """As `read_recipe`, from a text.

    >>> recipe, machine = parse_recipe('envs = ["ludic/Countdown-v0", "ludic/Maze-v0=2"]')
    >>> [(env.id, env.weight) for env in recipe.envs], machine.device
    ([('ludic/Countdown-v0', 1.0), ('ludic/Maze-v0', 2.0)], 'auto')
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"no TOML: {error}") from error
    values = _without_tables({name.replace("-", "_"): value for name, value in tables.items()})
    check_names(values, dict.fromkeys([*FACTS, *SETTINGS, *MACHINE]), "the config")
    envs = values.pop("envs", [])
    if not isinstance(envs, list) or not envs:
        raise ConfigError('a config names what to learn from: envs = ["ludic/Countdown-v0"]')
    # A file that says how much is imitated has settings of its own for what follows, too.
    usual = recipe_for(
        [named_env(e) if isinstance(e, str) else _table(TrainEnv, e, "[[envs]]") for e in envs],
        model=values.get("model"),
        warm_start=False if "demonstrations" in values else None,
    )
    run_settings = {name: values[name] for name in SETTINGS if name in values}
    if out is not None:
        run_settings["out"] = out
    # The types are checked by the conversion, which must come before the values are.
    flat = {**usual.defaults.flat(), **run_settings}
    parts = {part: {n: flat[n] for n in flat if SETTINGS[n] == part} for part in PARTS}
    top = {name: value for name, value in flat.items() if not SETTINGS[name]}
    settings = _converted(RunConfig, {**top, **parts})
    changes = {name: values[name] for name in FACTS if name in values}
    if "evals" in changes:
        if not isinstance(changes["evals"], Mapping):
            raise ConfigError(
                f"evals = {changes['evals']!r}; write a table [evals.NAME] for each set"
            )
        changes["evals"] = {
            name: _table(EvalTasks, tasks, f"[evals.{name}]")
            for name, tasks in changes["evals"].items()
        }
    if "curriculum" in changes:
        changes["curriculum"] = _table(LevelSchedule, changes["curriculum"], "[curriculum]")
    if "demonstrator" in changes:
        changes["demonstrator"] = _table(Demonstrator, changes["demonstrator"], "[demonstrator]")
    machine = _converted(Machine, {name: values[name] for name in MACHINE if name in values})
    same = {field.name: getattr(usual, field.name) for field in fields(usual)}
    checked = _converted(Recipe, {**same, **changes, "defaults": settings})
    return checked, machine


def recipe_toml(recipe: Recipe, config: RunConfig, machine: Machine | None = None) -> str:
    """The TOML text that `parse_recipe` reads back as the recipe with these settings."""
    # Heavy for what --help needs.
    import tomli_w

    # TOML has no null: what is left out has its default when it is read, which is None there.
    settings = {**asdict(config), "harness": config.harness.as_data()}
    data = {**facts(recipe), **settings, "machine": asdict(machine or Machine())}
    return tomli_w.dumps(_without_none(data))


def _without_tables(values: Mapping[str, Any]) -> dict[str, Any]:
    flat = dict(values)
    for name, kind in {**PARTS, "machine": Machine}.items():
        table = flat.pop(name, {})
        if not isinstance(table, Mapping):
            raise ConfigError(f"[{name}] is {table!r}, which should be a table")
        table = {key.replace("-", "_"): value for key, value in table.items()}
        check_names(table, {each.name: None for each in fields(kind)}, f"[{name}]")
        flat |= table
    return flat


def _table(kind: type[T], value: Any, where: str) -> T:  # noqa: ANN401 - TOML
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} is {value!r}, which should be a table")
    check_names(value, kind.__dataclass_fields__, where)  # type: ignore[attr-defined]
    return _converted(kind, value)


def _converted(kind: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass from plain values. Raises ConfigError for a value of another type."""
    import msgspec

    def decoded(type_: type, value: Any) -> Any:  # noqa: ANN401 - any JSON
        if type_ is Path and isinstance(value, str | Path):
            return Path(value)
        raise ValueError(f"expected {type_.__name__}, got {value!r}")

    try:
        return msgspec.convert(dict(values), kind, dec_hook=decoded, from_attributes=True)
    except msgspec.ValidationError as error:
        # msgspec names the place as a JSON path, whose root a reader of TOML does not know.
        raise ConfigError(str(error).replace("`$.", "`")) from error


def _without_none(value: Any) -> Any:  # noqa: ANN401 - plain data
    if isinstance(value, Mapping):
        return {key: _without_none(part) for key, part in value.items() if part is not None}
    if isinstance(value, list | tuple):
        return [_without_none(part) for part in value]
    return str(value) if isinstance(value, Path) else value
