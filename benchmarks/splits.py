"""Compare the tasks of the train and the test split of every environment that makes its own.

    python benchmarks/splits.py [ID ...] [--seeds 100000]

Tasks of so many seeds are compared as a whole, those of the first `TASKS` of a split also by 13
words in a row. The figures go to benchmarks/results/splits.json, after each environment, and
into the table of docs/guides/audits.md. Other environments keep their lines.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from envs_registry.catalog import CATALOG
from ludic_gym.audit.splits import TASKS, texts_of
from ludic_gym.audit.subject import AuditSubject
from ludic_gym.data.contamination import overlap
from ludic_gym.errors import ConfigError, DataError

ROOT = Path(__file__).parents[1]
RESULTS, GUIDE = ROOT / "benchmarks/results/splits.json", ROOT / "docs/guides/audits.md"
SEEDS = 100_000
# The share of them that is drawn for each split, as without a split.
SHARES = {"train": 0.8, "test": 0.2}
# The tower itself is one position.
KWARGS = {"ludic/TowerOfHanoi-v0": {"start": "random", "disks": 5}}
# Of wall time per split: most environments need a minute or less.
SECONDS = 3_600.0
HEAD = """\
| id | train | test | equal | 13 words in common | such as |
|---|---:|---:|---:|---:|---|
"""

Figures = dict[str, int | str]


def compared(env_id: str, seeds: int = SEEDS) -> Figures:
    """Figures of an environment. Raises ConfigError or DataError if it has no splits to compare."""
    subject = AuditSubject(env_id=env_id, kwargs=KWARGS.get(env_id, {}), budget_s=SECONDS)
    train, test = (texts_of(subject, s, round(seeds * share)) for s, share in SHARES.items())
    known, asked = set(train), set(test)
    first = overlap(train[:TASKS], test[:TASKS])
    return {
        "train_seeds": len(train),
        "test_seeds": len(test),
        "train": len(known),
        "test": len(asked),
        "equal": len(known & asked),
        "compared": first.test,
        "shared": first.shared,
        "example": " ".join(first.example.split()[:13]),
    }


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of the guide.

    >>> figures = {"train_seeds": 9, "test_seeds": 3, "train": 5, "test": 2, "equal": 0}
    >>> found = {"ludic/Nim-v0": {**figures, "compared": 2, "shared": 1, "example": "a b"}}
    >>> print(table(found).splitlines()[-1])
    | `ludic/Nim-v0` | 5 of 9 | 2 of 3 | 0 | 1 of 2 | a b |
    """
    return HEAD + "".join(
        f"| `{env_id}` | {one['train']:,} of {one['train_seeds']:,} | {one['test']:,} of "
        f"{one['test_seeds']:,} | {one['equal']:,} | {one['shared']:,} of {one['compared']:,} | "
        f"{one['example']} |\n"
        for env_id, one in found.items()
    )


def with_table(guide: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    """The guide with the table in place of the one that it has."""
    start = guide.index(HEAD)
    end = guide.index("\n\n", start) + 1
    return guide[:start] + table(found) + guide[end:]


def measured(ids: Iterable[str], seeds: int) -> Iterator[tuple[str, Figures]]:
    """Figures of the environments that have splits."""
    for env_id in ids:
        try:
            yield env_id, compared(env_id, seeds)
        except (ConfigError, DataError) as error:
            print(f"{env_id}: {error}", file=sys.stderr)


def main() -> None:
    """Measure, and write the files after each environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    args, order = parser.parse_args(), [entry.id for entry in CATALOG]
    for env_id, figures in measured(args.ids or order, args.seeds):
        found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        found[env_id] = figures
        found = {name: found[name] for name in sorted(found, key=order.index)}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        GUIDE.write_text(with_table(GUIDE.read_text(encoding="utf-8"), found), encoding="utf-8")
        print(env_id, figures, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
