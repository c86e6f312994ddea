"""Sampled tokens per second, beside the `generate` of transformers.

    python benchmarks/sampler.py [--threads 1] [--repeats 3] [--models tiny 10M 135M "135M bf16"]
        [--seconds 15]

bfloat16 is measured where it is named: without instructions for it a load takes `generate` minutes.

Both sample at temperature 1 and return log-probs; nothing ends before its number of tokens. The
model of 135M params has the shape of SmolLM2, and samples a quarter of the tokens. No round of a
load begins after `seconds`, since one of the larger models may take a minute.
`generate` gets token ids, padded on the left; Ludic's client gets messages from coroutines, one for
each completion. Every number is the median of `repeats`, taken in turns, in CPU
seconds where there is one thread; compare ratios, not absolutes.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rates import budget, kept_line, rates_in_turns, ratio_of, save
from rich.console import Console
from rich.table import Table
from shapes import random_model

from ludic_gym.types import Message, Sampling
from ludic_train.engine.client import LocalChatClient
from ludic_train.models.chat_template import render_chat
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer

MODELS = {
    "tiny": {},
    "10M": {"hidden_size": 384, "num_layers": 6, "num_heads": 6, "num_kv_heads": 2},
}
# Of the other models, with the part of the tokens and with the type of the params.
LARGE, PART = {"135M": torch.float32, "135M bf16": torch.bfloat16}, 4
# Of the rate of `generate`, by load.
GOALS = {"batch 16": 1.4, "batch 64": 1.4, "ragged 64": 1.4}


@dataclass(frozen=True)
class Load:
    """Requests: a dialog and a number of tokens for each completion."""

    dialogs: Sequence[Sequence[Message]]
    sizes: Sequence[int]


def make_load(name: str, part: int = 1, seed: int = 0) -> Load:
    """Prompts of 32 tokens and completions of 64; or ragged ones, 5 to 100 and 8 to 64.

    name: of GOALS. part: divides the tokens of the completions. seed: of texts and ragged lengths.
    """
    rng, (kind, number) = random.Random(seed), name.split()
    texts, sizes = [24] * int(number), [64] * int(number)
    if kind == "ragged":
        # The chat template adds 8 tokens, so 5 to 100 stands for 0 to 92 characters.
        texts, sizes = [rng.randint(0, 92) for _ in texts], [rng.randint(8, 64) for _ in sizes]
    dialogs = [
        [Message(role="user", content="".join(rng.choices("0123456789XO", k=size)))]
        for size in texts
    ]
    return Load(dialogs, [size // part for size in sizes])


def make_loads(part: int = 1) -> dict[str, Load]:
    """All loads by name. part: divides the tokens of the completions."""
    return {name: make_load(name, part) for name in GOALS}


def endless(name: str) -> tuple[torch.nn.Module, object]:
    """A random model and its tokenizer, neither of which knows a token that ends a text."""
    tokenizer = make_tokenizer(["1 2 X\n4 O 6\n7 8 9"])
    if name in LARGE:
        model = random_model("135M").to(LARGE[name])
    else:
        model = make_tiny_model(tokenizer, **MODELS[name]).eval()
    # Of a template without ends of turns, because they end a reply too.
    tokenizer.chat_template = tokenizer.chat_template.replace("<|im_end|>", "|")
    tokenizer.eos_token = None
    model.generation_config.eos_token_id = None
    return model, tokenizer


def sample_ours(client: LocalChatClient, load: Load) -> int:
    """Number of sampled tokens."""

    async def all_of_them() -> list[int]:
        completions = await asyncio.gather(
            *(
                client.complete(dialog, Sampling(seed=i, max_tokens=size))
                for i, (dialog, size) in enumerate(zip(load.dialogs, load.sizes, strict=True))
            )
        )
        return [len(completion.logprobs) for completion in completions]

    return sum(asyncio.run(all_of_them()))


@torch.inference_mode()
def sample_theirs(model: torch.nn.Module, prompts: Sequence[Sequence[int]], load: Load) -> int:
    """Number of requested tokens; `generate` samples up to the longest request for all rows."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    real = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    out = model.generate(
        ids.to(model.device),
        attention_mask=real.to(model.device),
        do_sample=True,
        max_new_tokens=max(load.sizes),
        return_dict_in_generate=True,
        output_logits=True,
        pad_token_id=0,
    )
    logprobs = torch.stack(out.logits, 1).log_softmax(-1)
    # Copied to the host, as Ludic's are.
    logprobs.gather(2, out.sequences[:, width:, None]).tolist()
    return sum(load.sizes)


def compared(name: str, repeats: int, enough_s: float, kept: list[object]) -> Table:
    """A row per load; the rates are added to `kept`.

    enough_s: seconds of a load after which no round of it begins.
    """
    model, tokenizer = endless(name)
    # Each round has the same prompts, the longer ones of which would be read once.
    client = LocalChatClient(model, tokenizer, prefix_cache_bytes=0)
    table = Table(f"{name}, tokens/s", "Ludic", "generate", "ratio")
    for label, load in make_loads(PART if name in LARGE else 1).items():
        prompts = [render_chat(tokenizer, dialog) for dialog in load.dialogs]
        ours, theirs = rates_in_turns(
            [
                lambda load=load: sample_ours(client, load),
                lambda load=load, prompts=prompts: sample_theirs(model, prompts, load),
            ],
            repeats,
            # The rounds of larger models take long, and one row has read all params before.
            warm_up=name == "tiny" or len(prompts) == 1,
            enough_s=enough_s,
        )
        found = {"ours": ours, "transformers generate": theirs}
        what = f"local engine, {name}, {label}: tokens"
        kept.append(kept_line(what, found, goal_ratio=GOALS[label]))
        ratio = f"{ratio_of(ours, theirs):.2f}"
        table.add_row(label, f"{ours.median:,.0f}", f"{theirs.median:,.0f}", ratio)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [*MODELS, *LARGE]
    usual = [name for name in names if LARGE.get(name) is not torch.bfloat16]
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=budget(3, 1))
    parser.add_argument("--seconds", type=float, default=15.0, help="of a load")
    parser.add_argument("--models", nargs="*", default=usual, choices=names)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    console, kept = Console(), list[object]()
    for name in args.models:
        console.print(compared(name, args.repeats, args.seconds, kept))
    save("engine", kept)


if __name__ == "__main__":
    main()
