"""Audit environments by the hundred, and print the table of `docs/guides/audits.md`.

    python benchmarks/audit.py --out audits            # all ids, or those that are named
    python benchmarks/audit.py --out audits --table    # the table of the reports in the folder
    python benchmarks/audit.py --mutants               # which planted faults are found

Ids whose report is in the folder are skipped, so that a sweep can be continued.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import ludic_gym  # noqa: F401 (registers the ids)
from envs_registry.catalog import ADAPTERS, CATALOG
from ludic_gym.audit.report import audit_env, write_audit
from ludic_gym.audit.subject import AuditSubject, statement_of

# The planted faults belong to the tests, which are no package.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from mutants import FAULTS, MUTANTS, SOUND, SOUND_SMALL, register


def audited(job: tuple[str, Path]) -> str:
    """Write the report of an id; its line."""
    env_id, out = job
    folder = out / env_id.replace("/", "-")
    if (folder / "audit.json").exists():
        return f"{env_id}: already there"
    start = time.process_time()
    # An id that cannot be made ends no sweep: its errors are findings.
    report = audit_env(AuditSubject(env_id=env_id, statement=statement_of(env_id)))
    write_audit(report, folder)
    faults = ", ".join(f"{f.check} ({f.summary[:80]})" for f in report.failed)
    return f"{env_id}: {report.counts} {time.process_time() - start:.1f} CPU-s {faults}"


def table(out: Path) -> str:
    """The reports of a folder as a Markdown table."""
    lines = ["| id | passed | failed | unknown | CPU-s | faults |", "|---|---:|---:|---:|---:|---|"]
    for path in sorted(out.glob("*/audit.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        counts = report["counts"]
        faults = ", ".join(f["check"] for f in report["findings"] if f["outcome"] == "fail")
        lines.append(
            f"| `{report['env']}` | {counts['pass']} | {counts['fail']} | {counts['unknown']} "
            f"| {report['seconds']:.1f} | {faults} |"
        )
    return "\n".join(lines)


def mutant_line(name: str) -> tuple[str, list[str]]:
    """A planted fault, and the checks that find it."""
    register()
    subject = AuditSubject(env_id=name)
    if mutant := {**MUTANTS, **SOUND}.get(name):
        stated = replace(statement_of(mutant.base), **mutant.stated)
        subject = AuditSubject(env_id=name, statement=stated, kwargs=mutant.kwargs)
    return name, [finding.check for finding in audit_env(subject).failed]


def mutant_table(names: list[str], workers: int) -> None:
    """Print each planted fault with the checks that find it, and a table of what is found."""
    kinds = {name: f"small, {kind}" for name, (kind, _) in FAULTS.items()}
    kinds |= dict.fromkeys(MUTANTS, "of the catalogue's environments")
    chosen = names or [*kinds, *SOUND, *SOUND_SMALL]
    planted, found, alarms, sound = Counter[str](), Counter[str](), 0, 0
    with ProcessPoolExecutor(workers) as pool:
        for name, checks in pool.map(mutant_line, chosen):
            print(f"{name}: {', '.join(checks) or '-'}", flush=True)
            if name in kinds:
                planted[kinds[name]] += 1
                found[kinds[name]] += bool(checks)
            else:
                sound, alarms = sound + 1, alarms + bool(checks)
    print("\n| faults | planted | found |\n|---|---:|---:|")
    for kind, count in planted.items():
        print(f"| {kind} | {count} | {found[kind]} |")
    print(
        f"\n{found.total()} of {planted.total()} found, {alarms} false alarms in {sound} sound ones"
    )


def main() -> None:
    """Run one of the three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("audits"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--mutants", action="store_true")
    args = parser.parse_args()
    if args.table:
        print(table(args.out))
    elif args.mutants:
        mutant_table(args.ids, args.workers)
    else:
        ids = args.ids or [entry.id for entry in (*CATALOG, *ADAPTERS) if entry.gym]
        with ProcessPoolExecutor(args.workers) as pool:
            for line in pool.map(audited, [(env_id, args.out) for env_id in ids]):
                print(line, flush=True)


if __name__ == "__main__":
    main()
