"""Training with tools: those that an environment offers, and a function of your own.

    python examples/tool_use/train_tools.py --model Qwen/Qwen2.5-0.5B-Instruct --updates 200
    python examples/tool_use/train_tools.py --offline         # the same code, on a tiny model

PythonToolMath brings a Python; `add` is there everywhere. Calls of these change nothing, and belong
to the policy. In ToolCalls a call is an action: it changes a calendar, a bank or a shop.
Offline, a tiny model imitates some replies: everything runs, nothing is learned.
"""

from __future__ import annotations

from pathlib import Path

import tyro

import ludic_gym as lg
import ludic_train as lt

ENVS = ("ludic/PythonToolMath-v0", "ludic/Arithmetic-v0", "ludic/ToolCalls-v0")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


HARNESS = lg.Harness(tools=(lg.as_tool(add),), rounds=4)
# A tiny model earns the same everywhere, and such groups would all be left out.
TINY = {"algo": lt.grpo(filter=None), "demonstrations": 130, "sft_updates": 2, "groups": 4}
TINY |= {"eval_episodes": 3, "final_episodes": 3, "max_tokens": 24, "preflight": False}


def train(
    model: str = "Qwen/Qwen2.5-0.5B-Instruct",
    *,
    offline: bool = False,
    engine: tuple[str, ...] = ("local",),
    updates: int = 200,
    out: Path = Path("runs/tools"),
) -> None:
    """Train in the three environments."""
    settings = TINY if offline else {"model": model, "engine": engine}
    lt.train(ENVS, harness=HARNESS, max_turns=8, updates=updates, out=out, **settings)


if __name__ == "__main__":
    tyro.cli(train)
