"""Differences between the local engine's log-probs and the trainer's, with and without `--exact`.

    python benchmarks/bitwise.py [--model ludic-small] [--tokens 1000000]

Prompts of 1 to 100 tokens in groups of 8, sampled in a batch of 256, and scored in micro-batches of
4,096. "sample" and "score" are CPU-seconds per 1,000 tokens; a model made from nothing without
--model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import count

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ludic_gym.types import Completion, Decision, Rollout, Sampling, Step, Task
from ludic_train.engine.batch import Request
from ludic_train.engine.engine import Engine
from ludic_train.models.exact import make_exact
from ludic_train.models.load import load_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.rows import trajectory_from
from ludic_train.trainer.forward import forward
from ludic_train.trainer.microbatches import plan_update

GROUP, BATCH, MOST_TOKENS, AT_ONCE = 8, 256, 200, 512


def requests(vocabulary: int) -> Iterator[Request]:
    """Requests without end; those of a group share their prompt."""
    rng = np.random.default_rng(0)
    for i in count():
        prompt = tuple(rng.integers(3, vocabulary, int(rng.integers(1, 101))).tolist())
        for member in range(GROUP):
            length = 1 + int(rng.integers(MOST_TOKENS))
            sampling = Sampling(seed=GROUP * i + member, max_tokens=length)
            yield Request(prompt_ids=prompt, sampling=sampling, policy_version=0)


def rollout(completion: Completion) -> Rollout:
    """One of a single turn."""
    decision = Decision(action="", completions=(completion,))
    return Rollout(
        task=Task(env_id=""), steps=(Step(observation="", decision=decision, reward=0.0),)
    )


def scored(model: PreTrainedModel, completions: list[Completion], *, packing: bool) -> torch.Tensor:
    """Trainer's log-prob less the engine's, of all tokens."""
    items = [row for each in completions for row in trajectory_from(rollout(each)).rows]
    found = []
    with torch.no_grad():
        for part in plan_update(items, token_budget=4096, packing=packing)[0]:
            assert part.behavior_logprobs is not None
            known = torch.from_numpy(part.behavior_logprobs)
            found.append(forward(model, part).logprobs - known)
    return torch.cat(found)


def measured(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: int, *, exact: bool
) -> list[str]:
    """Cells of the table."""
    engine = Engine(model, tokenizer, max_batch_size=BATCH)
    stream = requests(engine.vocab_size)
    done, differ, largest, sample_s, score_s = 0, 0, 0.0, 0.0, 0.0
    while done < tokens:
        began, completions = time.process_time(), list[Completion]()
        for _ in range(AT_ONCE):
            engine.add(next(stream))
        while not engine.is_idle:
            completions += [completion for _, completion in engine.advance()]
        sample_s += time.process_time() - began
        began = time.process_time()
        found = scored(model, completions, packing=not exact)
        score_s += time.process_time() - began
        done += len(found)
        differ += int((found != 0).sum())
        largest = max(largest, float(found.abs().max()))
    costs = [f"{1000 * seconds / done:.3f}" for seconds in (sample_s, score_s)]
    return [str(exact), f"{done:,}", f"{differ:,}", f"{largest:.2g}", *costs]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Engine and trainer, bit for bit.")
    parser.add_argument("--model")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    args = parser.parse_args()
    # As `make_exact` does, so that both rows have the same.
    torch.set_num_threads(1)
    table = Table("exact", "tokens", "differ", "largest, nats", "sample", "score")
    for exact in (False, True):
        if args.model is None:
            tokenizer = make_tokenizer(["1 2 X\n4 O 6"])
            model = make_tiny_model(tokenizer)
        else:
            model, tokenizer = load_model(args.model)
        model.eval()
        if exact:
            make_exact(model)
        table.add_row(*measured(model, tokenizer, args.tokens, exact=exact))
    Console().print(table)


if __name__ == "__main__":
    main()
