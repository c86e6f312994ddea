"""Sweeps in TOML, for `ludic bench --config`.

    envs = ["core", "ludic/Wordle-v0"]
    episodes = 200
    model = ["openai/NAME", "vllm/NAME"]
    out = "results"

    [[runs]]
    name = "NAME, greedy"
    model = "openai/NAME"
    temperature = 0.0

The names are those of the options of `ludic bench`, with "_" or "-"; `envs` are its arguments.
"""

from __future__ import annotations

import json
import tomllib
import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from ludic_gym.commands.bench_args import BenchArgs
from ludic_gym.errors import ConfigError
from ludic_gym.limits import RequestLimits
from ludic_gym.terminal import suggestion

# Runs that are compared play the same tasks, so these settings belong to all of them.
OF_A_RUN = (
    "policy", "model", "param", "extra_body", "concurrency", "timeout_s", "temperature", "top_p",
    "max_tokens", "price", "cached_price",
)  # fmt: skip
# Options of one command line, not of a sweep.
ELSEWHERE = ("ids", "config", "rescore", "repeat", "json")
TOML = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """One of the compared runs: its name, and the arguments of its own."""

    name: str
    args: BenchArgs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTable:
    """A table [[runs]]. name: None for that of its model or policy."""

    name: str | None
    settings: Mapping[str, Any]


def read_sweep(path: Path) -> tuple[BenchArgs, tuple[RunTable, ...]]:
    """The arguments in a TOML file, and its tables [[runs]].

    Raises ConfigError, with the file, if it cannot be read, for unknown names with a suggestion,
    and for values of another type.
    """
    try:
        return parse_sweep(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the config {path}: {error.strerror}") from error
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_sweep(text: str) -> tuple[BenchArgs, tuple[RunTable, ...]]:
    """As `read_sweep`, from a text.

    >>> args, runs = parse_sweep('envs = ["games"]')
    >>> args.ids, runs
    (('games',), ())
    """
    try:
        values = _underscored(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"no TOML: {error}") from error
    options = [field.name for field in fields(BenchArgs) if field.name not in ELSEWHERE]
    _refuse_unknown(values, ["envs", "runs", *options], "the config")
    tables = values.pop("runs", [])
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise ConfigError(f"runs = {tables!r}; write a table [[runs]] for each run")
    given = _converted(values)
    if "envs" in given:
        given["ids"] = given.pop("envs")
    return BenchArgs(**given), tuple(_run_table(_underscored(t)) for t in tables)


def entrants(args: BenchArgs, tables: Sequence[RunTable]) -> list[Entrant]:
    """The runs to compare: one per model, then one per table; each has a folder of its own.

    Raises ConfigError for two of one name.
    """
    found = [
        *((model, replace(args, model=(model,))) for model in args.model),
        *((table.name, replace(args, **{"model": (), **table.settings})) for table in tables),
    ]
    named = [
        (name or " ".join(filter(None, (a.policy, *a.model))) or "random", a) for name, a in found
    ]
    folders = [folder_name(name) for name, _ in named]
    for (name, _), folder in zip(named, folders, strict=True):
        if folders.count(folder) > 1:
            raise ConfigError(
                f"two of the compared runs are called {name!r}; give each [[runs]] a name"
            )
    return [
        Entrant(name=name, args=replace(a, out=None if a.out is None else a.out / folder))
        for (name, a), folder in zip(named, folders, strict=True)
    ]


def folder_name(name: str) -> str:
    """The name of a run's folder: other characters than letters, digits, "." and "_" are "-".

    >>> folder_name("openai/gpt 5"), folder_name("..")
    ('openai-gpt-5', '-')
    """
    kept = "".join(c if c.isalnum() or c in "._-" else "-" for c in name)
    # "." and ".." are other folders.
    return kept if kept.strip(".") else "-"


def _run_table(values: dict[str, TOML]) -> RunTable:
    _refuse_unknown(values, ["name", *OF_A_RUN], "[[runs]]")
    name = values.pop("name", None)
    if name is not None and not (isinstance(name, str) and name):
        raise ConfigError(f"[[runs]] name = {name!r}; expected a text")
    settings = _converted(values)
    if len(settings.get("model", ())) > 1:
        raise ConfigError(f"[[runs]] has one model, got {' '.join(settings['model'])}")
    return RunTable(name=name, settings=settings)


def _underscored(values: Mapping[str, TOML]) -> dict[str, TOML]:
    return {name.replace("-", "_"): value for name, value in values.items()}


def _refuse_unknown(values: Collection[str], known: Collection[str], where: str) -> None:
    for name in values:
        if name not in known:
            hint = suggestion(name, sorted(known), otherwise="it has")
            raise ConfigError(f"{where} has no setting {name!r}; {hint}")


def _converted(values: Mapping[str, TOML]) -> dict[str, Any]:
    """The values with the types of the options. Raises ConfigError for values of another type."""
    kinds = get_type_hints(BenchArgs)
    kinds["envs"] = kinds["ids"]
    return {name: _value(name, value, kinds[name]) for name, value in values.items()}


def _value(name: str, value: TOML, kind: Any) -> Any:  # noqa: ANN401 - any option
    # "X | None" of an option that need not be given; TOML has no null.
    if get_origin(kind) is types.UnionType:
        (kind,) = (part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is tuple:
        return _several(name, value, kind)
    # A table in place of JSON in a string.
    if name == "extra_body" and isinstance(value, Mapping):
        return json.dumps(value)
    if kind is RequestLimits and isinstance(value, Mapping):
        kinds = get_type_hints(RequestLimits)
        _refuse_unknown(value, kinds, name)
        return RequestLimits(**{key: _value(key, part, kinds[key]) for key, part in value.items()})
    accepted: Any = {Path: str, float: int | float}.get(kind, kind)
    # In Python True is an int, and would pass as a number.
    if not isinstance(value, accepted) or isinstance(value, bool) is not (kind is bool):
        raise ConfigError(f"{name} = {value!r}; expected {kind.__name__}")
    return kind(value)


def _several(name: str, value: TOML, kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any option
    if isinstance(value, Mapping) and name in ("param", "chat_arg", "env_kwargs"):
        # As the command line has them, where values are JSON too.
        return tuple(f"{key}={json.dumps(part)}" for key, part in value.items())
    parts = [value] if isinstance(value, str) else value
    first, last = get_args(kind)
    if not isinstance(parts, list) or (last is not ... and len(parts) != 2):
        length = "" if last is ... else " of 2"
        raise ConfigError(f"{name} = {value!r}; expected a list{length}")
    return tuple(_value(name, part, first) for part in parts)
