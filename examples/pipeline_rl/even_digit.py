"""What actors and trainer of this example share: a task, and a model that knows nothing yet.

    python examples/pipeline_rl/even_digit.py --save params/start

writes the model, for a server that samples:

    ludic serve params/start --engine embedded --port 8000
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import gymnasium as gym
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ludic_gym.envs.core.base import TextEnv, Turn, end
from ludic_gym.types import Sampling, Task
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer

QUESTION = "An even digit, please."


class EvenDigitEnv(TextEnv):
    """One question, one answer: reward 1 for an even digit, else 0."""

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Ask for an even digit."""
        return QUESTION, ""

    def turn(self, action: str) -> Turn:
        """Reward an even digit."""
        correct = action.strip() in set("02468")
        return end(success=correct, reward=float(correct))


gym.register("example/EvenDigitPipeline-v0", EvenDigitEnv)


def tasks(seed: int) -> Iterator[Task]:
    """The same question for ever, each time with new sampling seeds."""
    for i in count(seed * 1_000_000):
        sampling = Sampling(max_tokens=1, seed=i)
        yield Task(env_id="example/EvenDigitPipeline-v0", seed=i, sampling=sampling)


def model() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The same params in every process."""
    tokenizer = make_tokenizer([QUESTION])
    return make_tiny_model(tokenizer, seed=0), tokenizer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", default="params/start")
    folder = parser.parse_args().save
    save_model(*model(), folder)
    print(f"wrote {folder}, which learns to answer: {QUESTION}")
