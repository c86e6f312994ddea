"""CPU seconds of prompts with a common prefix, with cached prefixes and without, and of `generate`.

    python benchmarks/prefixes.py [--shapes tiny 135M] [--turns 8] [--tokens 16]
        [--repeats 3] [--exact]

First, eight prompts that share 390 of 400 tokens are read at once, and beside them one such prompt.
Then a dialog grows by 68 tokens a turn. Both are measured with the cache, without it, and
for `generate` of transformers, which reads whole prompts. All three have read a prompt before, so
that copies of matrices are there, and no prefix is kept from one repeat to the next. Every number
is the median CPU time of `repeats`, on one thread, taken in turns; compare ratios, not absolutes.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from harness.shapes import SHAPES, random_model
from rich.console import Console
from rich.table import Table
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ludic_gym.types import Completion, Sampling
from ludic_train.engine.client import LocalChatClient
from ludic_train.models.tokenizer import make_tokenizer

# The least and the largest that are measured.
MEASURED = "tiny", "135M"
PROMPT, SHARED, PROMPTS, GROWTH = 400, 390, 8, 68

Ids = tuple[int, ...]


def random_ids(rng: random.Random, size: int) -> Ids:
    """Ids of ordinary tokens."""
    return tuple(rng.randrange(300, 500) for _ in range(size))


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of the work, in seconds."""
    started = time.process_time()
    work()
    return time.process_time() - started


def sample(client: LocalChatClient, prompts: Sequence[Ids], size: int) -> list[Completion]:
    """Completions of the prompts, requested together."""

    async def together() -> list[Completion]:
        sampling = [Sampling(seed=i, max_tokens=size) for i in range(len(prompts))]
        requests = map(client.continued, prompts, sampling)
        return await asyncio.gather(*requests)

    return asyncio.run(together())


@torch.inference_mode()
def generate(model: PreTrainedModel, prompts: Sequence[Ids], size: int) -> None:
    """Sample by transformers' own loop; the prompts are of one length."""
    ids = torch.tensor(prompts)
    real = torch.ones_like(ids)
    model.generate(ids, attention_mask=real, do_sample=True, max_new_tokens=size, pad_token_id=0)


class Measured:
    """The three ways to sample, as CPU seconds, once each of them has read a prompt."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self._model = model
        self._clients = (
            LocalChatClient(model, tokenizer),
            LocalChatClient(model, tokenizer, prefix_cache_bytes=0),
        )
        # The first request copies the matrices, once for as long as the params stay the same.
        self.seconds([random_ids(random.Random(2), PROMPT)], 2)

    def forget(self) -> None:
        """Drop cached prefixes."""
        for client in self._clients:
            asyncio.run(client.forget_prefixes())

    def seconds(self, prompts: Sequence[Ids], size: int) -> list[float]:
        """CPU seconds with cached prefixes, without, and of `generate`."""
        works = [partial(sample, client, prompts, size) for client in self._clients]
        return [
            cpu_seconds(work) for work in (*works, partial(generate, self._model, prompts, size))
        ]


def shared_prompts(ways: Measured) -> list[list[float]]:
    """One prompt, and several that share most of their tokens, one token sampled for each."""
    ways.forget()
    rng, rows = random.Random(0), []
    for count in (1, PROMPTS):
        shared = random_ids(rng, SHARED)
        prompts = [(*shared, *random_ids(rng, PROMPT - SHARED)) for _ in range(count)]
        rows.append(ways.seconds(prompts, 1))
    return rows


def growing_dialog(ways: Measured, turns: int, size: int) -> list[list[float]]:
    """The turns of a dialog, `size` tokens sampled in each; what is new in the next is random."""
    ways.forget()
    rng, rows, prompt = random.Random(1), [], ()
    for _ in range(turns):
        prompt = (*prompt, *random_ids(rng, GROWTH))
        rows.append(ways.seconds([prompt], size))
    return rows


def table(name: str, labels: Sequence[str], repeats: Sequence[Sequence[Sequence[float]]]) -> Table:
    """The median seconds of each cell, and ratios."""
    shown = Table(name, "cached", "not cached", "generate", "not cached / cached", "cached / first")
    middle = torch.tensor(repeats).quantile(0.5, dim=0).tolist()
    for label, (cached, plain, theirs) in zip(labels, middle, strict=True):
        ratios = f"{plain / cached:.2f}", f"{cached / middle[0][0]:.2f}"
        shown.add_row(label, *(f"{each:.3f}" for each in (cached, plain, theirs)), *ratios)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="*", default=MEASURED, choices=SHAPES)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--exact", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    console, tokenizer = Console(), make_tokenizer(["1 2 X\n4 O 6"])
    tokenizer.eos_token = None
    for shape in args.shapes:
        ways = Measured(random_model(shape, exact=args.exact), tokenizer)
        shared, dialogs = [], []
        for _ in range(args.repeats):
            shared.append(shared_prompts(ways))
            dialogs.append(growing_dialog(ways, args.turns, args.tokens))
        console.print(f"{shape}, CPU seconds{', exact' * args.exact}")
        console.print(table("prompts", ["1", str(PROMPTS)], shared))
        turns = [f"turn {i}, {i * GROWTH} tokens" for i in range(1, args.turns + 1)]
        console.print(table("dialog", turns, dialogs))


if __name__ == "__main__":
    main()
