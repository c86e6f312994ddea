"""From the words of a command line to values."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import gymnasium as gym
import tyro
from rich.console import Console

from ludic_gym.errors import ConfigError
from ludic_gym.plugins import imported

Args = TypeVar("Args")
PIPE_WIDTH = 200


def option(metavar: str) -> object:
    """An argument whose help text says itself what happens without it."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


def parse(args_type: type[Args], argv: Sequence[str], *, command: str, examples: str) -> Args:
    """The arguments as a dataclass; its docstring and the examples are what `--help` shows.

    Exits with code 2 and the option's help for a word that does not parse.
    """
    about = inspect.getdoc(args_type) or ""
    lines = "\n".join(f"  {line}" for line in examples.strip().splitlines())
    return tyro.cli(
        args_type,
        args=argv,
        prog=f"ludic {command}",
        description=f"{about}\n\nexamples:\n{lines}",
    )


def keyword_arguments(pairs: Sequence[str]) -> Mapping[str, Any]:
    """("draw_reward=0.5", "opponent=random") -> {"draw_reward": 0.5, "opponent": "random"}.

    A value is JSON if it reads as JSON, else a string. Raises ConfigError for what is no pair.
    """
    return dict(_keyword_argument(pair) for pair in pairs)


def _keyword_argument(pair: str) -> tuple[str, Any]:
    key, equals, value = pair.partition("=")
    if not equals or not key.isidentifier():
        raise ConfigError(f"{pair!r} is not of the form key=value")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


@contextmanager
def readable_env_errors() -> Iterator[None]:
    """What `gymnasium.make` says about an unknown id or a wrong keyword, as ConfigError."""
    try:
        yield
    except gym.error.Error as error:
        raise ConfigError(f"{error} (`ludic list` shows the ids)") from error
    except TypeError as error:
        if "environment creator" not in str(error) and "keyword argument" not in str(error):
            raise
        raise ConfigError(str(error)) from error


def env_name(spec: str) -> str:
    """The id in "id" or "module:id"; the module, which registers it, is imported.

    The module may lie in the current folder. Raises ConfigError if it cannot be imported.
    """
    module, colon, env_id = spec.rpartition(":")
    if not colon:
        return spec
    imported(module, spec)
    return env_id


def screen() -> Console:
    """Standard output; nothing is folded where no terminal sets the width."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)
