"""Fail if a rate fell by more than 15 % from that in figures.json, and print what it spends.

    python benchmarks/guard.py            # 30 CPU-seconds
    python benchmarks/guard.py --update   # those of this maker, after a change meant to cost time

A figure is our rate over that of a limit that none of our code has a part in, measured in the same
process: the least that such work takes, a loop by hand, or `generate` of transformers. So a busy
machine changes it little. Between makers of processors it differs by up to a third: each has
figures of its own, and a maker without any is held against the lowest of all.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import platform
import pstats
import re
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import harness.engine_loads as engine
import harness.env_loads as envs
import harness.rollout_loads as rollouts
import harness.row_loads as rows
import harness.update_loads as updates
import torch
from envs import ANSWERS, BOARDS, grades, searches
from harness.rates import MakeWork, ratio

from ludic_gym.vector.ragged import RaggedVectorEnv, make_ragged

FIGURES = Path(__file__).parent / "figures.json"
LOWEST = 0.85
SECONDS, ROUNDS = 0.02, 15
# Of those that take a tenth of a second or more.
LONG, LONG_ROUNDS = ("Update", "Local engine"), 5
# Rates that seem to have fallen are measured again, some time after: a busy machine lets them fall
# for seconds.
ATTEMPTS, PAUSE_S = 6, 5.0
REASONING = ANSWERS["1.3 kB, none"]

# What is measured, and the limit beside it.
CHECKS: Mapping[str, tuple[MakeWork, MakeWork]] = {
    "Tic-Tac-Toe: steps": (partial(envs.steps, envs.GAME), envs.bare_steps),
    **{
        f"{name}: steps": (partial(envs.steps, env_id, **size), envs.bare_steps)
        for name, (env_id, size) in BOARDS.items()
    },
    "Arithmetic: episodes": (partial(envs.answers, envs.SUMS), envs.bare_steps),
    "GSM8K: episodes": (partial(envs.answers, envs.QUESTIONS), envs.bare_steps),
    "RaggedVectorEnv, 8 Tic-Tac-Toe: steps": (
        lambda: envs.vector_steps(make_ragged(envs.GAME, 8)),
        lambda: envs.lone_steps(envs.Bare),
    ),
    "RaggedVectorEnv, 64 bare envs: steps": (
        lambda: envs.vector_steps(RaggedVectorEnv([envs.Bare] * 64)),
        lambda: envs.lone_steps(envs.Bare),
    ),
    "grade_number, 1.3 kB: grades": (partial(grades, REASONING), partial(searches, REASONING)),
    "GSM8K: rollouts": (partial(rollouts.rollouts, envs.QUESTIONS, amount=256), envs.bare_steps),
    "Tic-Tac-Toe: rollouts": (partial(rollouts.rollouts, envs.GAME, amount=128), envs.bare_steps),
    "10 turns of 1,000 tokens: rows": (partial(rows.rows, 10), rows.copies),
    **{
        f"Update, {name}: tokens": (
            partial(updates.updates, lengths=lengths),
            partial(updates.updates_by_hand, lengths=lengths),
        )
        for name, lengths in (("equal rows", ()), ("uneven rows", updates.UNEVEN))
    },
    **{
        f"Local engine, {model}: tokens": (
            partial(engine.tokens, model, "batch 16"),
            partial(engine.tokens_of_generate, model, "batch 16"),
        )
        for model in ("tiny", "10M")
    },
}


def measured(name: str) -> float:
    """The figure of the check."""
    ours, limit = CHECKS[name]
    rounds = LONG_ROUNDS if name.startswith(LONG) else ROUNDS
    return ratio(ours(), limit(), seconds=SECONDS, rounds=rounds)


def shares_kept(figures: Mapping[str, float]) -> dict[str, float]:
    """The best of some attempts over the committed figure, which is printed after each of them."""
    best = dict.fromkeys(figures, 0.0)
    for attempt in range(ATTEMPTS):
        low = [name for name, share in best.items() if share < LOWEST]
        if attempt and low:
            time.sleep(PAUSE_S)
        for name in low:
            best[name] = max(best[name], measured(name) / figures[name])
            print(f"{name:40}{best[name]:8.0%} of {figures[name]:g}", flush=True)
    return best


def maker() -> str:
    """The maker of the processor, as Linux names it, or its kind."""
    cpuinfo = Path("/proc/cpuinfo")
    facts = cpuinfo.read_text() if cpuinfo.exists() else ""
    found = re.search(r"^vendor_id\s*: (.+)$", facts, re.MULTILINE)
    return found[1] if found else platform.machine()


def figures_of(all_figures: Mapping[str, Mapping[str, float]]) -> Mapping[str, float]:
    """The figures of this maker; of one that has none, the lowest of all."""
    if maker() in all_figures:
        return all_figures[maker()]
    names = set().union(*all_figures.values())
    makers = all_figures.values()
    return {name: min(each[name] for each in makers if name in each) for name in names}


def print_profile(name: str) -> None:
    """The functions in which the check spends most of its time."""
    work = CHECKS[name][0]()
    next(work)
    profile = cProfile.Profile()
    with profile:
        for _ in range(10):
            next(work)
    pstats.Stats(profile).sort_stats("tottime").print_stats(15)


def main() -> int:
    """The number of rates that fell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    torch.set_num_threads(1)
    parser.add_argument("--update", action="store_true", help="write figures.json anew")
    all_figures = json.loads(FIGURES.read_text())
    if parser.parse_args().update:
        figures = {name: round(sorted(measured(name) for _ in range(5))[2], 5) for name in CHECKS}
        all_figures[maker()] = figures
        FIGURES.write_text(json.dumps(all_figures, indent=1) + "\n")
        return 0
    figures = figures_of(all_figures)
    if figures.keys() != CHECKS.keys():
        sys.exit(f"other checks than in {FIGURES.name}: run python benchmarks/guard.py --update")
    fell = [name for name, share in shares_kept(figures).items() if share < LOWEST]
    for name in fell:
        print(f"\n{name} fell by more than {1 - LOWEST:.0%}; it spends:")
        print_profile(name)
    return len(fell)


if __name__ == "__main__":
    sys.exit(main())
