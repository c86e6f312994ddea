"""Time of `import ludic_gym` and of the start of `ludic`: best of five, each in a new process.

Goal: 0.25 s for the import.
"""

import subprocess
import sys
import time

PROGRAMS = {
    "python (nothing imported)": ["-c", "pass"],
    "import gymnasium, pettingzoo": ["-c", "import gymnasium, pettingzoo"],
    "import ludic_gym": ["-c", "import ludic_gym"],
    "ludic --help": ["-m", "ludic_gym", "--help"],
    "ludic list": ["-m", "ludic_gym", "list"],
}


def best_seconds(arguments: list[str], repeats: int = 5) -> float:
    """The shortest of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Prints the table."""
    empty = best_seconds(PROGRAMS["python (nothing imported)"])
    for name, arguments in PROGRAMS.items():
        seconds = best_seconds(arguments)
        print(f"{name:30s} {seconds:6.3f} s   {seconds - empty:6.3f} s over an empty python")


if __name__ == "__main__":
    main()
