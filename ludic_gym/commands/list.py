"""`ludic list`: print the environments.

    $ ludic list --suite core
    id                   title        players  suites
    ludic/TicTacToe-v0   Tic-Tac-Toe  1 or 2   core, multi-agent
    ludic/Arithmetic-v0  Arithmetic   1        core, math
    ...

The catalogue and its suites are in `envs_registry.catalog`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from envs_registry.adapters import ADAPTERS, AdapterEntry
from envs_registry.catalog import CATALOG, SUITES, EnvEntry
from ludic_gym.commands.arguments import option, parse, print_json, print_table
from ludic_gym.errors import ConfigError
from ludic_gym.suggestions import suggestion

EXAMPLES = """\
ludic list
ludic list --suite core
ludic list --all"""


@dataclass(frozen=True, kw_only=True)
class ListArgs:
    """Print the environments: id, title, players and suites."""

    suite: Annotated[str | None, option("NAME")] = None
    """Only the environments of this suite."""
    all: bool = False
    """Print environments of other packages too, with the package that each needs."""
    json: bool = False
    """Print JSON in place of the table."""


def main(argv: list[str]) -> int:
    """Run `ludic list`; 0. Raises ConfigError for an unknown suite."""
    args = parse(ListArgs, argv, command="list", examples=EXAMPLES)
    if args.json:
        print_json(plain_entries(args))
        return 0
    print_table(
        ("id", "title", "players", "suites"),
        [(e.id, e.title, players_of(e), ", ".join(e.suites)) for e in entries_of(args.suite)],
    )
    # A table of its own: these have no title and no suite, but a package to install.
    if args.all:
        print_table(
            ("id", "players", "package", "to install"),
            [(e.id, players_of(e), e.package, f"ludic-gym[{e.extra}]") for e in ADAPTERS],
        )
    return 0


def plain_entries(args: ListArgs) -> list[dict[str, object]]:
    """The entries as JSON; those of other packages have "package" and "install"."""
    found: list[dict[str, object]] = [
        {"id": e.id, "title": e.title, "players": players_of(e), "suites": e.suites}
        for e in entries_of(args.suite)
    ]
    for e in ADAPTERS if args.all else ():
        install = f"ludic-gym[{e.extra}]"
        found.append(
            {"id": e.id, "players": players_of(e), "package": e.package, "install": install}
        )
    return found


def entries_of(suite: str | None) -> tuple[EnvEntry, ...]:
    """The catalogue, or the entries of a suite, in the order of the catalogue.

    suite: None for all. Raises ConfigError for an unknown suite.

    >>> [entry.title for entry in entries_of("core")][:2]
    ['Tic-Tac-Toe', 'Arithmetic']
    """
    if suite is None:
        return CATALOG
    if suite not in SUITES:
        raise ConfigError(f"no suite {suite!r}; {suggestion(suite, SUITES)}")
    return tuple(entry for entry in CATALOG if entry.id in SUITES[suite])


def players_of(entry: EnvEntry | AdapterEntry) -> str:
    """Numbers of players for which there is a view: "1", "2" or "1 or 2".

    One player is a Gymnasium environment, two are a PettingZoo one.
    """
    return " or ".join(["1"] * bool(entry.gym) + ["2"] * bool(entry.aec))
