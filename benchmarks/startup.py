"""CPU-seconds of the start of programs, each in a new process, beside `import gymnasium`.

    python benchmarks/startup.py

Each run of a program follows one of `import gymnasium`; the ratio is the median of those of the
rounds. A machine whose speed changes from minute to minute has no other figure to compare. Goals
are in seconds of a machine that takes 0.25 for `import gymnasium`.
The last line is `ludic train tic-tac-toe` up to the metrics of its first update: demonstrations,
tokenizer, model and the evaluation before are in it. The line before is what it imports at least,
as the help of one option is what each command's help takes at least.
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

from rates import budget, save

COMMANDS = (
    *("list", "play", "bench", "view", "check", "audit", "train", "serve", "launch", "status"),
    *("doctor", "model"),
)
# The least that a command's help takes.
ONE_OPTION = """\
import ludic_gym, tyro
def command(option: int = 1): ...
tyro.cli(command, args=["--help"])
"""
GYMNASIUM = ("-c", "import gymnasium")
# Its CPU-seconds on the machine that the goals are for.
UNIT = 0.25
# What is started, and the goal in CPU-seconds; 0 for none.
PROGRAMS: dict[str, tuple[Sequence[str], float]] = {
    "python": (("-c", "pass"), 0.0),
    "import ludic_gym": (("-c", "import ludic_gym"), 0.0),
    "import ludic_gym, and tyro's help of one option": (("-c", ONE_OPTION), 0.0),
    "ludic --help": (("-m", "ludic_gym", "--help"), 0.35),
    **{f"ludic {name} --help": (("-m", "ludic_gym", name, "--help"), 0.7) for name in COMMANDS},
}


# What a run of the policy that is trained from nothing cannot do without; a run collects no garbage
# meanwhile.
LIMIT = "import torch, and Llama from transformers"
IMPORTS = "import gc; gc.disable(); import torch; from transformers import LlamaForCausalLM"
PROGRAMS[LIMIT] = ("-c", IMPORTS), 0.0
TRAINS, TRAINS_GOAL = "ludic train tic-tac-toe, first update", 6.0


def start(arguments: Sequence[str]) -> None:
    """Run this Python with the arguments to its end."""
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


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
            metrics = out / "metrics.jsonl"
            # Not of an evaluation alone.
            while not (metrics.exists() and '"loss"' in metrics.read_text(encoding="utf-8")):
                if process.poll() is not None:
                    raise RuntimeError(f"the run ended with {process.returncode}")
                time.sleep(0.02)
            process.kill()


def main() -> None:
    """Print the table."""
    kept = []
    works: dict[str, tuple[Callable[[], None], float]] = {
        name: (partial(start, arguments), goal) for name, (arguments, goal) in PROGRAMS.items()
    }
    works[TRAINS] = first_update, TRAINS_GOAL
    print(f"{'CPU-seconds':50}{'ours':>7}{'gymnasium':>12}{'ratio':>8}")
    for name, (work, goal) in works.items():
        # A start with torch takes as long as ten others.
        rounds = budget(2 if name in {LIMIT, TRAINS} else 3, 1)
        pairs = [
            (children_seconds(partial(start, GYMNASIUM)), children_seconds(work))
            for _ in range(rounds)
        ]
        units, own = zip(*pairs, strict=True)
        ratio = median(seconds / unit for unit, seconds in pairs)
        line = {"what": name, "median": median(own), "best": min(own), "unit": median(units)}
        kept.append({**line, "ratio": ratio, "goal_ratio": goal / UNIT})
        wanted = f"   goal {goal / UNIT:g}" if goal else ""
        print(f"{name:50}{min(own):7.2f}{min(units):12.2f}{ratio:8.2f}{wanted}", flush=True)
    save("startup", kept)


if __name__ == "__main__":
    main()
