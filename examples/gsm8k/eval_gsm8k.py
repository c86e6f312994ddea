"""Accuracy of a model on GSM8K, with its interval.

    python examples/gsm8k/eval_gsm8k.py --model http://localhost:8000/v1 --split test
    python examples/gsm8k/eval_gsm8k.py --offline

`ludic bench ludic/GSM8K-v0 --policy URL --parser xml:answer --out results` keeps every transcript.
"""

from __future__ import annotations

import tyro

import ludic_gym as lg

HARNESS = lg.Harness(
    system_prompt="Think step by step, then give just the number inside <answer></answer>.",
    parser="xml:answer",
)


def seven(env: lg.Env) -> lg.Policy:
    """A policy that always replies 7."""
    return HARNESS.policy(lg.ScriptedClient(lambda messages, sampling: "<answer>7</answer>"), env)


def measure(
    model: str = "http://localhost:8000/v1",
    *,
    offline: bool = False,
    split: str | None = None,
    episodes: int | None = None,
) -> None:
    """Measure the model, or one that always replies 7, on a split or the bundled sample."""
    result = lg.evaluate(
        "ludic/GSM8K-v0",
        seven if offline else model,
        harness=None if offline else HARNESS,
        split=split,
        episodes=episodes,
        sampling=lg.Sampling(temperature=0.0, max_tokens=512),
    )
    low, high = result.success_interval
    print(f"solved {result.successes} of {result.episodes}: {result.success_rate:.1%}", end=" ")
    print(f"[{low:.1%}, {high:.1%}], {len(result.errors)} failed")


if __name__ == "__main__":
    tyro.cli(measure)
