"""Roles that a cluster starts again: how often, after which ends, and with which command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from ludic_gym.commands.main import USAGE_ERROR
from ludic_train.commands.command_lines import without_options
from ludic_train.commands.processes import Kind
from ludic_train.commands.train import INTERRUPTED, SUPERSEDED
from ludic_train.commands.train_options import TaskOptions

# Replaced on the node that runs the command: its address, and a port that is free there.
HOST, PORT = "{host}", "{port}"
# Options that describe tasks: a resumed run has them in its folder, and refuses them.
OF_NEW_RUNS = frozenset(
    ("--config", *(f"--{each.name.replace('_', '-')}" for each in fields(TaskOptions)))
)


@dataclass(frozen=True, slots=True)
class Policy:
    """The number of restarts of a role, and exit codes after which there is none."""

    restarts: int
    final: frozenset[int]


# Other codes of a trainer are those of a crash. Actors and servers end with another error than that
# of bad input where a trainer began its run anew, and a Redis while the one before has the port.
POLICIES: Mapping[Kind, Policy] = {
    "actor": Policy(100, frozenset({0, USAGE_ERROR})),
    "server": Policy(100, frozenset({0, USAGE_ERROR})),
    "trainer": Policy(20, frozenset({0, USAGE_ERROR, SUPERSEDED, INTERRUPTED})),
    "redis": Policy(100, frozenset()),
}


def resumed(words: Sequence[str]) -> list[str]:
    """The command line of a trainer that continues its run, from the one that started it."""
    kept = without_options(words, OF_NEW_RUNS)
    return kept if "--resume" in kept else [*kept, "--resume"]
