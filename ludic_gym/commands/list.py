"""`ludic list`: what there is to play."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from rich.markup import escape
from rich.table import Table

from envs_registry.adapters import ADAPTERS, AdapterEntry
from envs_registry.catalog import CATALOG, SUITES, EnvEntry
from ludic_gym.commands.arguments import option, parse, screen
from ludic_gym.errors import ConfigError

EXAMPLES = """\
ludic list
ludic list --suite core
ludic list --all"""


@dataclass(frozen=True, kw_only=True)
class ListArgs:
    """Show the environments: id, title, players and suites."""

    suite: Annotated[str | None, option("NAME")] = None
    """Only the environments of this suite."""
    all: bool = False
    """Those of other packages too, with the package that each needs."""


def main(argv: list[str]) -> int:
    """Runs `ludic list`."""
    args = parse(ListArgs, argv, command="list", examples=EXAMPLES)
    screen().print(env_table(entries_of(args.suite)))
    if args.all:
        screen().print(adapter_table(ADAPTERS))
    return 0


def entries_of(suite: str | None) -> tuple[EnvEntry, ...]:
    """The catalogue, or the part that is in a suite; raises ConfigError for an unknown one."""
    if suite is None:
        return CATALOG
    if suite not in SUITES:
        raise ConfigError(f"no suite {suite!r}; there are: {', '.join(SUITES)}")
    return tuple(entry for entry in CATALOG if entry.id in SUITES[suite])


def env_table(entries: Sequence[EnvEntry]) -> Table:
    """One line per environment."""
    table = Table("id", "title", "players", "suites", box=None, pad_edge=False)
    for entry in entries:
        players = "1 or 2" if entry.aec else "1"
        table.add_row(entry.id, entry.title, players, ", ".join(entry.suites))
    return table


def adapter_table(entries: Sequence[AdapterEntry]) -> Table:
    """One line per environment of another package."""
    table = Table("id", "players", "package", "to install", box=None, pad_edge=False)
    for entry in entries:
        install = f"ludic-gym[{entry.extra}]"
        players = " or ".join(["1"] * bool(entry.gym) + ["2"] * bool(entry.aec))
        table.add_row(entry.id, players, entry.package, escape(install))
    return table
