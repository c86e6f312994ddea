"""`ludic status`: state and load of vLLM servers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import tyro
from rich.table import Table
from rich.text import Text

from ludic_gym.commands.arguments import print_json, screen
from ludic_gym.errors import ConfigError
from ludic_train.cluster.status.servers import Status, statuses

# Exit code, so that a script can wait until all servers respond.
UNREACHABLE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Show the version, state and load of vLLM servers.

    The load is the number of requests that run and wait, and the used share of the cache. The exit
    code is 1 if a server gives no valid response.

    For example:
      ludic status http://localhost:8000
      ludic status http://node1:8000 http://node2:8000

    Attributes:
        urls: Addresses of the servers.
        json: Print JSON in place of the table.
    """

    urls: Annotated[list[str], tyro.conf.Positional]
    json: bool = False


def main(argv: list[str]) -> int:
    """Print the table; the exit code."""
    options = tyro.cli(_Options, args=argv, prog="ludic status")
    if not options.urls:
        raise ConfigError("name the address of a server, such as http://localhost:8000")
    found = asyncio.run(statuses(options.urls))
    if options.json:
        print_json([asdict(each) for each in found])
    else:
        screen().print(render(found))
    return UNREACHABLE if any(each.error for each in found) else 0


def render(found: Sequence[Status]) -> Table:
    """The states as a table; markup in a server's texts has no effect."""
    table = Table("server", "version", "state", "running", "waiting", "cache", "tokens sampled")
    for each in found:
        if each.error:
            table.add_row(Text(each.url), "", Text(each.error, style="red"))
            continue
        # A server is paused during a push; one that stays paused was left by a failed one.
        state = "paused" if each.is_paused else "serving"
        numbers = (str(each.running), str(each.waiting), f"{each.cache:.0%}", f"{each.sampled:,}")
        table.add_row(Text(each.url), Text(each.version), state, *numbers)
    return table
