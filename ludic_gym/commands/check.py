"""`ludic check`: test environments against the contract.

    $ ludic check ludic/ConnectFour-v0
    ok      ludic/ConnectFour-v0: keeps 23 rules

The rules are those of `ludic_gym.testing.rules`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import gymnasium as gym
import tyro

from envs_registry.catalog import CATALOG
from ludic_gym.commands.arguments import (
    env_name,
    keyword_arguments,
    option,
    parse,
    readable_env_errors,
)
from ludic_gym.errors import ConfigError
from ludic_gym.testing.check import complaint_about, verdicts

EXAMPLES = """\
ludic check ludic/TicTacToe-v0
ludic check ludic/Arithmetic-v0 --env-kwargs digits=3
ludic check my_envs:mine/Riddle-v0
ludic check --all"""
BLANK_LINE = "\r\x1b[K"


@dataclass(frozen=True, kw_only=True)
class CheckArgs:
    """Test environments against the contract of text environments."""

    ids: Annotated[tyro.conf.Positional[tuple[str, ...]], option("[ID ...]")] = ()
    """Environment ids; module:id for your own, if importing the module registers it."""
    all: tyro.conf.FlagCreatePairsOff[bool] = False
    """Test every environment of the catalogue; this takes some minutes."""
    env_kwargs: Annotated[tuple[str, ...], option("KEY=VALUE ...")] = ()
    """Arguments of the env."""


def main(argv: list[str]) -> int:
    """Run `ludic check`; 1 if an environment breaks a rule.

    Raises ConfigError for an unknown id, before any environment is tested.
    """
    args = parse(CheckArgs, argv, command="check", examples=EXAMPLES)
    if bool(args.ids) == args.all:
        raise ConfigError(
            "name at least one environment (see `ludic list`), or all of them with --all"
        )
    kwargs = keyword_arguments(args.env_kwargs)
    ids = [entry.id for entry in CATALOG] if args.all else [env_name(spec) for spec in args.ids]
    # Every id is made first: a misspelt one must be reported at once, not after minutes.
    for env_id in ids:
        with readable_env_errors():
            gym.make(env_id, **kwargs).close()
    broken = [env_id for i, env_id in enumerate(ids) if not passes(env_id, kwargs, i, len(ids))]
    if len(ids) > 1:
        print(f"{len(ids) - len(broken)} of {len(ids)} keep the contract")
    return 1 if broken else 0


def passes(env_id: str, kwargs: Mapping[str, Any], index: int, count: int) -> bool:
    """True if the env keeps every rule; print the progress and the broken rules.

    kwargs: arguments of the env.
    index, count: position of the env among all that are tested, for the progress.
    """
    tried, complaints = 0, list[str]()
    for tried, verdict in enumerate(verdicts(env_id, **kwargs), 1):
        show_progress(f"[{index + 1}/{count}] {env_id}: {tried} rules tried")
        if verdict.complaint:
            complaints.append(complaint_about(env_id, verdict))
    show_progress("")
    breaks = f", breaks {len(complaints)}" if complaints else ""
    summary = f"keeps {tried - len(complaints)} rules{breaks}"
    # Flushed, because the next environment may take a minute, and a pipe is buffered.
    print(f"{'FAILED' if complaints else 'ok':8}{env_id}: {summary}", flush=True)
    for complaint in complaints:
        print(f"        {complaint}", flush=True)
    return not complaints


def show_progress(text: str) -> None:
    """Replace the progress line, "" to remove it; only on a terminal.

    On standard error, so that the output can be piped into another program.
    """
    if sys.stderr.isatty():
        print(f"{BLANK_LINE}{text}", end="", file=sys.stderr, flush=True)
