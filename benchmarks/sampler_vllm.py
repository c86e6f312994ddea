"""Sampled tokens per second of the local engine, beside a vLLM for CPUs.

    python benchmarks/sampler_vllm.py --python PATH [--dtypes float32 bfloat16] [--repeats 3]
        [--tokens 16] [--mode compiled]

A model with the shape of SmolLM2-135M and random params; vLLM loads it in a process of its own, by
peers/vllm_offline.py. Both get token ids, sample at temperature 1 and return the log-prob of each
token; nothing ends before its number of tokens. Each round has new prompts, so that no cached
prefix is of use, and the first one does not count. Rates are of CPU seconds, on one thread each,
in turns: the median of `repeats`. The limit is the products with the model's matrices, attention
and the draws of tokens alone, as the engine computes them, for as many rows: no sampler that calls
these kernels is faster. One line compares log-probs of vLLM's tokens with the model's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from harness.kernels import KERNELS, Kernels, Requests
from harness.rates import Rate, budget, kept_line, rates_of, ratio_of, save
from prefixes import Ids, random_ids, random_model
from rich.console import Console
from rich.table import Table
from transformers import PreTrainedModel

from ludic_gym.types import Sampling
from ludic_train.cluster.servers.installed import find_vllm
from ludic_train.engine.client import LocalChatClient
from ludic_train.models.tokenizer import make_tokenizer

PEER = Path(__file__).parent / "peers" / "vllm_offline.py"
SHAPE, PROMPT = "135M", 32
# Of a completion, of which ragged requests sample an eighth or more.
FEWEST = 8
# Of the rate of vLLM.
GOAL = 1.2
LOADS = ("batch 1", "batch 16", "batch 64", "ragged 64")
PRODUCTS = "products alone"


def requests_of(load: str, tokens: int, number: int) -> Requests:
    """Requests of a load in a round: prompts of 32 tokens, or ragged ones of 5 to 100.

    tokens: to sample at most; ragged requests sample an eighth of it or more. number: of the round.
    """
    kind, count = load.split()
    lengths, rng = random.Random(0), random.Random(1 + number)
    if kind == "batch":
        sizes = [(PROMPT, tokens)] * int(count)
    else:
        pairs = ((lengths.randint(5, 100), lengths.randint(tokens // 8, tokens)) for _ in range(64))
        sizes = list(pairs)
    return Requests([random_ids(rng, size) for size, _ in sizes], [size for _, size in sizes])


class VLLM:
    """A process of vLLM that samples what it is sent. log_path: of what it prints."""

    def __init__(self, python: str, folder: Path, dtype: str, mode: str, log_path: Path) -> None:
        command = [python, str(PEER), str(folder), dtype, mode]
        with log_path.open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._log_path = log_path
        self._read()

    def sample(self, requests: Requests) -> dict[str, Any]:
        """CPU seconds, tokens, and the first completion."""
        assert self.process.stdin is not None
        line = {"prompts": requests.prompts, "sizes": requests.sizes}
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"vLLM has ended:\n{self._log_path.read_text()[-3000:]}")
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def running(python: str, model: PreTrainedModel, dtype: str, mode: str) -> Iterator[VLLM]:
    """A vLLM of the model."""
    with TemporaryDirectory() as name:
        model.save_pretrained(name)
        vllm = VLLM(python, Path(name), dtype, mode, Path(name) / "vllm.log")
        try:
            yield vllm
        finally:
            vllm.process.kill()
            vllm.process.wait()


def sample_ours(client: LocalChatClient, requests: Requests) -> tuple[float, int]:
    """CPU seconds, and sampled tokens."""

    async def together() -> int:
        sampling = [Sampling(seed=i, max_tokens=size) for i, size in enumerate(requests.sizes)]
        found = await asyncio.gather(*map(client.continued, requests.prompts, sampling))
        return sum(len(completion.logprobs or ()) for completion in found)

    started = time.process_time()
    tokens = asyncio.run(together())
    return time.process_time() - started, tokens


@torch.inference_mode()
def difference(model: PreTrainedModel, prompt: Ids, found: dict[str, Any]) -> float:
    """The largest difference of vLLM's log-probs to those of the model by itself, in nats."""
    ids = torch.tensor([[*prompt, *found["ids"]]])
    logits = model(ids).logits[0, len(prompt) - 1 : -1].float()
    own = logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0]
    return float((own - torch.tensor(found["logprobs"])).abs().max())


def compared(
    client: LocalChatClient,
    kernels: Kernels,
    vllm: VLLM,
    load: str,
    tokens: int,
    repeats: int,
) -> list[Rate]:
    """The rates of the local engine, of vLLM, of its kernels, and of the products among them."""
    spent: list[list[float]] = [[], [], [], []]
    for number in range(repeats + 1):
        # Caches are cold in the first round, of few tokens, which does not count.
        requests = requests_of(load, tokens if number else FEWEST, number)
        seconds, sampled = sample_ours(client, requests)
        found = vllm.sample(requests)
        assert sampled == found["tokens"] == sum(requests.sizes), (sampled, found["tokens"])
        if number:
            least = (kernels.seconds(requests, products_alone=each) for each in (False, True))
            for kept, each in zip(spent, (seconds, found["seconds"], *least), strict=True):
                kept.append(each)
    return rates_of([[sum(requests.sizes) / each for each in kept] for kept in spent])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="a Python with vLLM for CPUs")
    parser.add_argument("--dtypes", nargs="*", default=["float32", "bfloat16"])
    parser.add_argument("--loads", nargs="*", default=LOADS, choices=LOADS)
    parser.add_argument("--repeats", type=int, default=budget(3, 1))
    parser.add_argument("--tokens", type=int, default=budget(16, FEWEST))
    parser.add_argument("--mode", default="compiled", choices=["compiled", "eager"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    name = f"vLLM {find_vllm(args.python).version}"
    kept, tokenizer = list[object](), make_tokenizer(["1 2 X\n4 O 6"])
    tokenizer.eos_token = None
    for dtype in args.dtypes:
        model = random_model(SHAPE, exact=False).to(getattr(torch, dtype))
        table = Table(f"{SHAPE} {dtype}, tokens/s", "Ludic", name, "ratio", KERNELS, PRODUCTS)
        with running(args.python, model, dtype, args.mode) as vllm:
            client, first = LocalChatClient(model, tokenizer), requests_of("batch 1", 32, -1)
            off = difference(model, first.prompts[0], vllm.sample(first))
            kernels = Kernels(model)
            for load in args.loads:
                rates = compared(client, kernels, vllm, load, args.tokens, args.repeats)
                found = dict(zip(("ours", name, KERNELS, PRODUCTS), rates, strict=True))
                what = f"local engine, {SHAPE} {dtype}, {load}: tokens"
                kept.append(kept_line(what, found, goal_ratio=GOAL, limit=KERNELS))
                ours, theirs, *limits = [f"{rate.median:,.1f}" for rate in rates]
                ratio = f"{ratio_of(*rates[:2]):.2f}"
                table.add_row(load, ours, theirs, ratio, *limits)
                print(load, ours, theirs, ratio, *limits, flush=True)
        Console().print(table, f"vLLM's log-probs differ from the model's by at most {off:.1e}")
        save("engine_vllm", kept)


if __name__ == "__main__":
    main()
