"""GRPO on APPS: a chat model writes programs, which hidden tests judge in a sandbox.

    python examples/apps/train_apps.py --model Qwen/Qwen2.5-Coder-0.5B-Instruct \
        --split train --updates 500
    python examples/apps/train_apps.py --offline            # the same code, on a tiny model

With `ludic serve MODEL` on another card, --engine http://localhost:8000 samples there. Rows of APPS
ask for a program that reads stdin, for a function, or for a method of a class. Without --split,
three rows of these kinds, below, are played. Offline, a tiny model imitates some solutions:
everything runs, nothing is learned.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import tyro

import ludic_train as lt

ENV_ID = "ludic/StdinStdout-v0"


def row(question: str, tests: dict[str, Any], solution: str, starter: str = "") -> dict[str, str]:
    """A row in the fields of APPS: tests and solutions are JSON in texts."""
    packed = {"input_output": json.dumps(tests), "solutions": json.dumps([solution])}
    return {"question": question, "starter_code": starter, **packed}


ROWS = (
    row(
        "Read two integers from one line and write the larger one.",
        {"inputs": ["3 5\n", "-1 -4\n", "7 7\n"], "outputs": ["5\n", "-1\n", "7\n"]},
        "print(max(map(int, input().split())))",
    ),
    row(
        "Count the vowels (a, e, i, o, u) of a text.",
        {"fn_name": "vowels", "inputs": [["banana"], ["xyz"], [""]], "outputs": [[3], [0], [0]]},
        "def vowels(text):\n    return sum(letter in 'aeiou' for letter in text)",
        "def vowels(text):",
    ),
    row(
        "Return the numbers that are greater than the one before them.",
        {"fn_name": "rises", "inputs": [[[1, 3, 2, 4]], [[5, 5]]], "outputs": [[3, 4], []]},
        "class Solution:\n    def rises(self, nums: List[int]) -> List[int]:\n"
        "        return [b for a, b in zip(nums, nums[1:]) if b > a]",
        "class Solution:\n    def rises(self, nums: List[int]) -> List[int]:",
    ),
)


# A tiny model earns the same everywhere, and such groups would all be left out.
TINY = {"algo": lt.grpo(filter=None), "demonstrations": 130, "sft_updates": 2, "groups": 4}
TINY |= {"eval_episodes": 3, "final_episodes": 3, "preflight": False}


def train(
    model: str = "Qwen/Qwen2.5-Coder-0.5B-Instruct",
    *,
    offline: bool = False,
    split: str | None = None,
    engine: tuple[str, ...] = ("local",),
    updates: int = 200,
    out: Path = Path("runs/apps"),
) -> None:
    """Train on a split of APPS, or on the rows above."""
    settings = TINY if offline else {"model": model, "engine": engine, "max_tokens": 1024}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "apps.jsonl"
        file.write_text("\n".join(map(json.dumps, ROWS)))
        rows = {"split": split} if split else {"data": str(file)}
        # Partial credit: the share of tests that pass, since few first tries pass all.
        env_kwargs = {**rows, "partial_credit": True}
        lt.train(ENV_ID, env_kwargs=env_kwargs, updates=updates, out=out, **settings)


if __name__ == "__main__":
    tyro.cli(train)
