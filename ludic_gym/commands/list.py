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
from importlib import import_module
from typing import Annotated

from envs_registry.catalog import ADAPTERS, CATALOG, SUITES, AdapterEntry, EnvEntry
from envs_registry.errata import ERRATA
from envs_registry.published import PUBLISHED
from ludic_gym.commands.arguments import option, parse, print_json, print_table
from ludic_gym.errors import ConfigError
from ludic_gym.terminal import suggestion

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
    """Print published benchmarks and environments of other packages too."""
    json: bool = False
    """Print JSON in place of the table."""


def main(argv: list[str]) -> int:
    """Run `ludic list`; 0. Raises ConfigError for an unknown suite."""
    args = parse(ListArgs, argv, command="list", examples=EXAMPLES)
    entries = entries_of(args.suite)
    if args.json:
        records: list[dict[str, object]] = [
            {"id": e.id, "title": e.title, "players": players_of(e), "suites": e.suites}
            for e in entries
        ]
        for b in PUBLISHED.values() if args.all else ():
            records.append({"benchmark": b.name, "id": b.id, "title": b.title, "data": b.hub})
        for e in ADAPTERS if args.all else ():
            package = {"package": e.package, "install": f"ludic-gym[{e.extra}]"}
            faults = {"erratum": ERRATA[e.id].note} if e.id in ERRATA else {}
            records.append({"id": e.id, "players": players_of(e), **package, **faults})
        print_json(records)
        return 0
    rows = [(e.id, e.title, players_of(e), ", ".join(e.suites)) for e in entries]
    print_table(("id", "title", "players", "suites"), rows)
    # Tables of their own: these have no suite, but data to name, or a package to install.
    if args.all:
        sets = [(e.name, e.id, e.title, e.hub or "local files") for e in PUBLISHED.values()]
        print_table(("benchmark", "id", "title", "data"), sets)
        others = [(e.id, players_of(e), e.package, f"ludic-gym[{e.extra}]") for e in ADAPTERS]
        print_table(("id", "players", "package", "to install"), others)
        print_table(("id", "erratum"), [(env_id, one.note) for env_id, one in ERRATA.items()])
    return 0


def entries_of(suite: str | None) -> tuple[EnvEntry, ...]:
    """The catalogue, or the entries of a suite, in the order of the catalogue.

    suite: None for all. Raises ConfigError for an unknown suite.

    >>> [entry.title for entry in entries_of("core")][:2]
    ['GSM8K', 'Countdown']
    """
    if suite is None:
        return CATALOG
    if suite not in SUITES:
        raise ConfigError(f"no suite {suite!r}; {suggestion(suite, SUITES)}")
    return tuple(entry for entry in CATALOG if entry.id in SUITES[suite])


def players_of(entry: EnvEntry | AdapterEntry) -> str:
    """Numbers of players: "1", "1 or 2", "1 or 2 to 6".

    One player is a Gymnasium environment, more are a PettingZoo one.
    """
    seats = entry.seats if isinstance(entry, EnvEntry) else "2"
    return " or ".join(["1"] * bool(entry.gym) + [seats] * bool(entry.aec))


def source_of(entry: EnvEntry) -> str:
    """Origin and licence of the tasks.

    >>> source_of(entries_of("core")[0]), source_of(entries_of("games")[1])
    ('sample written here, Apache-2.0; openai/gsm8k, MIT', 'generated, Apache-2.0')
    """
    # Imported here: --help needs no data.
    from ludic_gym.data.hub import OWN, licence_of

    if "dataset" in entry.tags:
        module, _, name = entry.gym.partition(":")
        sets = dict.fromkeys(getattr(import_module(module), name).hub_ids.values())
        named = (f"{one}, {licence_of(one)}" for one in sets)
        return "; ".join([f"sample written here, {OWN}", *named])
    return f"{'generated' if 'procedural' in entry.tags else 'written here'}, {OWN}"
