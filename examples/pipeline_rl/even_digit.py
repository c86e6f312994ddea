"""Task and untrained model of the actors and the trainer of this example.

    python examples/pipeline_rl/even_digit.py --save params/start

writes the model, for a server that samples:

    ludic serve params/start --engine local --port 8000
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import gymnasium as gym
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import ludic_gym as lg
import ludic_train as lt

QUESTION = "An even digit, please."


class EvenDigitEnv(lg.TextEnv):
    """One question, one answer: reward 1 for an even digit, else 0."""

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Ask for an even digit."""
        return QUESTION, ""

    def turn(self, action: str) -> lg.Turn:
        """Reward an even digit."""
        correct = action.strip() in set("02468")
        return lg.end(success=correct, reward=float(correct))


gym.register("example/EvenDigitPipeline-v0", EvenDigitEnv)


def tasks(seed: int) -> Iterator[lg.Task]:
    """The same question without end, each time with another sampling seed."""
    for i in count(seed * 1_000_000):
        sampling = lg.Sampling(max_tokens=1, seed=i)
        yield lg.Task(env_id="example/EvenDigitPipeline-v0", seed=i, sampling=sampling)


def model() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The same params in every process."""
    tokenizer = lt.make_tokenizer([QUESTION])
    return lt.make_tiny_model(tokenizer, seed=0), tokenizer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", default="params/start")
    folder = parser.parse_args().save
    lt.save_model(*model(), folder)
    print(f"wrote {folder}, which learns to answer: {QUESTION}")
