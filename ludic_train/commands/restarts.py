"""Roles of a cluster: their resources, and how often, when and with which command they restart."""

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


def resources_of(
    kind: Kind, *, cpus: float, rank_gpus: float, server_gpus: float
) -> Mapping[str, float]:
    """CPUs and GPUs that a role has to itself, by the names that Ray has for them.

    cpus: of a rank, a server or an actor. rank_gpus, server_gpus: of a rank of the trainer, and of
        a server; an actor computes on none.
    """
    if kind == "redis":
        # On the node of the launcher, which may be full.
        return {"CPU": 0.0, "GPU": 0.0}
    gpus = {"trainer": rank_gpus, "server": server_gpus}.get(kind, 0.0)
    return {"CPU": cpus, "GPU": gpus}


def resumed(words: Sequence[str]) -> list[str]:
    """The command line of a trainer that continues its run, from the one that started it."""
    kept = without_options(words, OF_NEW_RUNS)
    return kept if "--resume" in kept else [*kept, "--resume"]
