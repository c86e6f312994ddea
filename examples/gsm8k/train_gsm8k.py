"""GRPO on GSM8K: a chat model thinks, replies in a tag, and is rewarded for correct numbers.

    python examples/gsm8k/train_gsm8k.py --model Qwen/Qwen2.5-0.5B-Instruct --updates 500
    python examples/gsm8k/train_gsm8k.py --offline            # the same code, on a tiny model

With `ludic serve MODEL` on another card, --engine http://localhost:8000 samples there. Offline, a
tiny model imitates some answers of the bundled questions: everything runs, nothing is learned.
"""

from __future__ import annotations

from pathlib import Path

import tyro

import ludic_gym as lg
import ludic_train as lt

HARNESS = lg.Harness(
    system_prompt="Think inside <think></think>, then give just the number inside "
    "<answer></answer>.",
    parser="think+xml:answer",
    form="<think></think><answer>{}</answer>",
)


# A tiny model earns the same everywhere, and such groups would all be left out.
TINY = {"algo": lt.grpo(filter=None), "demonstrations": 130, "sft_updates": 2, "groups": 4}
TINY |= {"eval_episodes": 3, "final_episodes": 3, "preflight": False}
HUB = {"env_kwargs": {"split": "train"}, "eval_kwargs": {"split": "test"}, "max_tokens": 512}


def train(
    model: str = "Qwen/Qwen2.5-0.5B-Instruct",
    *,
    offline: bool = False,
    engine: tuple[str, ...] = ("local",),
    updates: int = 200,
    out: Path = Path("runs/gsm8k"),
) -> None:
    """Train on the train split, and measure on the test split."""
    settings = TINY if offline else {"model": model, "engine": engine, "groups": 8, **HUB}
    lt.train("ludic/GSM8K-v0", harness=HARNESS, updates=updates, out=out, **settings)


if __name__ == "__main__":
    tyro.cli(train)
