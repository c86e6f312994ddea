"""Rates of several works, measured in turns so that all see the same machine."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

# Tiny budgets try the programs out: their figures say nothing, and are kept apart.
TINY = bool(os.environ.get("LUDIC_BENCH_TINY"))
RESULTS = Path(tempfile.gettempdir()) / "ludic-bench" if TINY else Path(__file__).parent / "results"
PACKAGES = (
    *("ludic-gym", "gymnasium", "pettingzoo", "numpy", "gem-llm", "textarena", "torch"),
    *("transformers", "trl", "redis"),
)
# Does a batch of the work for every item, and yields its number of units.
Work = Iterator[int]
MakeWork = Callable[[], Work]


@dataclass(frozen=True)
class Rate:
    """Units per CPU-second of this process: in the middle round, and in the best one.

    ratio: of our rate to this one, the median over rounds in which both were measured; None where
        there were no such rounds.
    """

    median: float
    best: float
    ratio: float | None = None


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a table: our work, that of peers, and a limit.

    limit: name and work of what our work cannot be faster than; None without one.
    goal: units per CPU-second; goal_ratio: of the fastest peer. 0 for none.
    """

    what: str
    ours: MakeWork
    peers: Mapping[str, MakeWork] = field(default_factory=dict)
    limit: tuple[str, MakeWork] | None = None
    goal: float = 0.0
    goal_ratio: float = 0.0


def budget(usual: int, tiny: int) -> int:
    """The number of rounds or units to measure: `tiny` where LUDIC_BENCH_TINY is set."""
    return tiny if TINY else usual


def rates(works: Mapping[str, Work], *, seconds: float, rounds: int) -> dict[str, Rate]:
    """The rate of each work, from `rounds` rounds in which each runs for so many CPU-seconds.

    works: the first one is ours.
    """
    if TINY:
        seconds, rounds = 0.0, 1
    # The first batch fills caches and finishes imports.
    for work in works.values():
        next(work)
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(_rate(work, seconds))
    return dict(zip(found, rates_of(list(found.values())), strict=True))


def rates_of(found: Sequence[Sequence[float]]) -> list[Rate]:
    """Rates of works from those of their rounds, [works, rounds]; the first work is ours."""
    # A machine's speed may double between two rounds, for all works of a round.
    return [
        Rate(median(each), max(each), median(a / b for a, b in zip(found[0], each, strict=True)))
        for each in found
    ]


def ratio_of(ours: Rate, other: Rate) -> float:
    """Our rate over the other one."""
    return ours.median / other.median if other.ratio is None else other.ratio


def _rate(work: Work, seconds: float) -> float:
    start, units, spent = time.process_time(), 0, 0.0
    # At least one batch, and a clock that has moved.
    while spent <= seconds:
        units += next(work)
        spent = time.process_time() - start
    return units / spent


def print_table(name: str, lines: Sequence[Line], *, seconds: float = 0.1, rounds: int = 7) -> None:
    """Measure the lines, print them, and keep them in results/<name>.json with the versions."""
    print(f"{name}: units per CPU-second, the median of {rounds} rounds; in brackets the best")
    print(f"{'':42}{'ours':>20}{'other':>10}{'ratio':>7}  of")
    kept = []
    for line in lines:
        limit = line.limit[0] if line.limit else ""
        works = {"ours": line.ours()}
        for peer, make in [*line.peers.items(), *([line.limit] if line.limit else [])]:
            # A peer that is not installed is left out.
            with suppress(ImportError):
                work = make()
                next(work)
                works[peer] = work
        found = rates(works, seconds=seconds, rounds=rounds)
        ours, *others = found.items()
        _print_line(line, ours[1], dict(others))
        kept.append(
            kept_line(
                line.what,
                found,
                goal=line.goal,
                goal_ratio=line.goal_ratio,
                limit=limit,
                missing=[peer for peer in line.peers if peer not in found],
            )
        )
    save(name, kept)


def kept_line(
    what: str,
    found: Mapping[str, Rate],
    *,
    goal: float = 0.0,
    goal_ratio: float = 0.0,
    limit: str = "",
    missing: Sequence[str] = (),
) -> dict[str, object]:
    """A line of a table as its JSON has it.

    found: rates by name: "ours", peers, and the limit. goal, goal_ratio, limit: see `Line`.
    missing: peers that are not installed.
    """
    rates = {
        name: {**asdict(rate), "ratio": ratio_of(found["ours"], rate)}
        for name, rate in found.items()
    }
    goals = {"goal": goal, "goal_ratio": goal_ratio}
    return {"what": what, **goals, "limit": limit, "missing": list(missing), "rates": rates}


def rate_of(units: float, seconds: Sequence[float]) -> Rate:
    """The rate of a work that took so many seconds in each of its rounds."""
    return Rate(units / median(seconds), units / min(seconds))


def _print_line(line: Line, ours: Rate, others: Mapping[str, Rate]) -> None:
    figure = f"{ours.median:,.0f} ({ours.best:,.0f})"
    print(f"{line.what:42}{figure:>20}", end="")
    compared = [(rate.median, ratio_of(ours, rate), name) for name, rate in others.items()]
    if line.goal:
        compared.append((line.goal, ours.median / line.goal, "goal"))
    absent = [name for name in line.peers if name not in others]
    if not compared:
        print(f"  not installed: {', '.join(absent)}" if absent else "", flush=True)
    for number, (rate, over, name) in enumerate(compared):
        wanted = f" (goal {line.goal_ratio:g})" if line.goal_ratio and name in line.peers else ""
        indent = "" if number == 0 else " " * 62
        print(f"{indent}{rate:10,.0f}{over:7.2f}  {name}{wanted}", flush=True)


def save(name: str, found: object) -> None:
    """Write results/<name>.json: the figures, the machine and the versions of all packages."""
    RESULTS.mkdir(exist_ok=True)
    about = {
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "packages": {package: _version(package) for package in PACKAGES},
        "date": time.strftime("%Y-%m-%d"),
    }
    text = json.dumps({**about, "lines": found}, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def rates_in_turns(
    works: Sequence[Callable[[], int]],
    repeats: int,
    *,
    warm_up: bool = True,
    enough_s: float = math.inf,
) -> list[Rate]:
    """Units per second of each work, which returns their number, from up to `repeats` rounds.

    works: the first one is ours.
    warm_up: the first round does not count. enough_s: no round begins after so many seconds of
        rounds that count.
    """
    amounts = [work() for work in works] if warm_up else [0] * len(works)
    seconds: list[list[float]] = [[] for _ in works]
    while len(seconds[0]) < repeats and sum(map(sum, seconds)) <= enough_s:
        for i, work in enumerate(works):
            started = clock()
            amounts[i] = work()
            seconds[i].append(clock() - started)
    return rates_of([[n / s for s in spent] for n, spent in zip(amounts, seconds, strict=True)])


def clock() -> float:
    """CPU seconds of this process, or with several threads seconds of the wall."""
    threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else 1
    return time.process_time() if threads == 1 else time.perf_counter()
