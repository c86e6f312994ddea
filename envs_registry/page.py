"""The page docs/environments.md from the catalogue: `python -m envs_registry.page > FILE`."""

from __future__ import annotations

from collections.abc import Iterator

from envs_registry.catalog import CATALOG, EnvEntry
from envs_registry.speeds import SPEEDS

HEADER = """\
# Environments

```python
import gymnasium, ludic_gym

env = gymnasium.make("ludic/Mastermind-v0")
observation, info = env.reset(seed=0)
print(observation)
```

```text
Guesses left: 10
```

`ludic list` prints this list, `ludic play ID` plays one of them, and its docstring has the rules,
the arguments and an example. "Random" and "oracle" say how often a policy succeeds that plays
random legal actions (random texts where any text is legal), and the environment's own oracle,
with the arguments that an id has by itself. An oracle that does not always succeed is no mistake:
it plays from what a player sees, and cards, seats and lucky opponents decide the rest.

"Speed" is steps of random play per CPU-second, as a multiple of Tic-Tac-Toe's, which takes some
hundred thousand; a dash says that other processes do most of the work. `python benchmarks/envs.py
--all` measures it.

This page is made by `python -m envs_registry.page`.
"""
TABLE = """\
| id | what it is | views | random | oracle | speed |
|---|---|---|---:|---:|---:|
"""


def environments_page() -> str:
    """The page: one table per suite, in the catalogue's order, each environment once."""
    first = dict.fromkeys(entry.suites[0] for entry in CATALOG)
    return "\n".join([HEADER, *map(section, first)])


def section(suite: str) -> str:
    """The heading and table of a suite, with the environments that have it as their first."""
    rows = "".join(row(entry) for entry in CATALOG if entry.suites[0] == suite)
    return f"## {suite}\n\n{TABLE}{rows}"


def row(entry: EnvEntry) -> str:
    """One line of a table."""
    rates = f"{entry.random_success:.3f} | {entry.oracle_success:.3f}"
    about = f"{entry.description} | {', '.join(views(entry))} | {rates}"
    return f"| `{entry.id}` | {about} | {SPEEDS.get(entry.id, '-')} |\n"


def views(entry: EnvEntry) -> Iterator[str]:
    """Names of its views."""
    yield "Gymnasium"
    if entry.aec:
        yield "AEC"
    if entry.parallel:
        yield "Parallel"


if __name__ == "__main__":
    print(environments_page(), end="")
