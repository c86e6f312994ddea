"""CPU-seconds of the start of programs, the least of three, each in a new process.

    python benchmarks/startup.py

The last line is `ludic train tic-tac-toe` up to the metrics of its first update: demonstrations,
tokenizer, model and the evaluation before are in it. The line before is what it imports at least,
as `import ludic_gym and tyro` is for each command.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

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
    "import ludic_gym and tyro": (("-c", "import ludic_gym, tyro, rich.console"), 0.0),
    "ludic --help": (("-m", "ludic_gym", "--help"), 0.35),
    **{f"ludic {name} --help": (("-m", "ludic_gym", name, "--help"), 0.7) for name in COMMANDS},
}


# What a run of the policy that is trained from nothing cannot do without; a run collects no garbage
# meanwhile.
LIMIT = "import torch, and Llama from transformers"
IMPORTS = "import gc; gc.disable(); import torch; from transformers import LlamaForCausalLM"
PROGRAMS[LIMIT] = ("-c", IMPORTS), 0.0
TRAINS, TRAINS_GOAL = "ludic train tic-tac-toe, first update", 6.0


def cpu_seconds(arguments: Sequence[str]) -> float:
    """User and system time of a process, and of those that it started."""

    def run() -> None:
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)

    return children_seconds(run)


def children_seconds(run: Callable[[], None]) -> float:
    """User and system time of the processes that ended meanwhile."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_update() -> None:
    """Train until the metrics of an update are written. Raises RuntimeError if the run ends."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "ludic_gym", "train", "tic-tac-toe", "--out", str(out)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while not has_update(out / "metrics.jsonl"):
                if process.poll() is not None:
                    raise RuntimeError(f"the run ended with {process.returncode}")
                time.sleep(0.02)
            process.kill()


def has_update(path: Path) -> bool:
    """True if some line has the metrics of an update, and not of an evaluation alone."""
    return path.exists() and '"loss"' in path.read_text(encoding="utf-8")


def main() -> None:
    """Print the table."""
    kept = []
    works = {
        name: (partial(cpu_seconds, arguments), goal)
        for name, (arguments, goal) in PROGRAMS.items()
    }
    works[TRAINS] = partial(children_seconds, first_update), TRAINS_GOAL
    for name, (work, goal) in works.items():
        spent = [work() for _ in range(budget(3, 1))]
        kept.append({"what": name, "median": median(spent), "best": min(spent), "goal": goal})
        print(f"{name:40}{min(spent):7.2f}" + (f"   goal {goal:g}" if goal else ""), flush=True)
    save("startup", kept)


if __name__ == "__main__":
    main()
