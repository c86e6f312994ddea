"""CPU-seconds of the start of programs, the least of three, each in a new process.

python benchmarks/startup.py
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from statistics import median

from harness.rates import budget, save

COMMANDS = (
    *("bench", "play", "list", "check", "audit", "view", "compare", "leaderboard", "tournament"),
    *("sandbox", "train", "actor", "launch", "plan", "serve", "status", "top", "doctor", "model"),
)
# What is started, and the goal in CPU-seconds; 0 for none.
PROGRAMS: dict[str, tuple[Sequence[str], float]] = {
    "python": (("-c", "pass"), 0.0),
    "import gymnasium": (("-c", "import gymnasium"), 0.0),
    "import ludic_gym": (("-c", "import ludic_gym"), 0.0),
    "ludic --help": (("-m", "ludic_gym", "--help"), 0.35),
    **{f"ludic {name} --help": (("-m", "ludic_gym", name, "--help"), 0.7) for name in COMMANDS},
}


def cpu_seconds(arguments: Sequence[str]) -> float:
    """User and system time of a process, and of those that it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    kept = []
    for name, (arguments, goal) in PROGRAMS.items():
        spent = [cpu_seconds(arguments) for _ in range(budget(3, 1))]
        kept.append({"what": name, "median": median(spent), "best": min(spent), "goal": goal})
        print(f"{name:30}{min(spent):7.2f}" + (f"   goal {goal:g}" if goal else ""), flush=True)
    save("startup", kept)


if __name__ == "__main__":
    main()
