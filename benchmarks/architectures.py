"""Model types of transformers: scored, packed, saved and sampled exactly?

    python benchmarks/architectures.py [NAME ...] [--threads 1]

Small models of random params, one per type, as tests/model_types.py makes them. Of each: nats
between the trainer's log-probs and those of the model's own forward pass; whether items share rows,
and the reason if they do not; whether it is saved and read back with equal bits; nats between the
log-probs of the local engine and the trainer's, over texts that join and leave its batch, and
whether steps use the model's cache or read whole texts.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rates import save
from rich.console import Console
from rich.table import Table
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ludic_gym.types import Completion, Sampling
from ludic_train.engine.batch import Engine, Request
from ludic_train.models.head import action_logprobs
from ludic_train.models.load import load_model, save_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.trainer.probes import logprob_difference, reason_not_to_pack

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from model_types import made

# In use for text today, towers of models with images left out.
CURRENT = [
    "llama", "llama4_text", "mistral", "ministral", "mixtral", "qwen2", "qwen2_moe", "qwen3",
    "qwen3_moe", "qwen3_next", "qwen3_5_text", "gemma", "gemma2", "gemma3_text", "gemma4_text",
    "phi", "phi3", "phimoe", "olmo2", "olmo3", "olmoe", "granite", "granitemoe", "granitemoehybrid",
    "gpt_oss", "glm", "glm4", "deepseek_v3", "minicpm3", "cohere2", "smollm3", "seed_oss", "lfm2",
    "mamba", "jamba", "bamba", "falcon_h1", "nemotron_h", "exaone4", "ernie4_5", "apertus", "arcee",
    "afmoe", "bloom",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Found:
    """Results of one model type.

    scored, sampled: nats per token, the mean and the greatest. rows: "packed", or the reason.
    reloaded: True for equal bits. steps: "fast", "own cache" or "whole texts".
    """

    name: str
    scored: float
    rows: str
    reloaded: bool
    sampled: float
    steps: str


STEPS = {"Decoder": "fast", "AnyDecoder": "own cache", "TextDecoder": "whole texts"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=CURRENT)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    # The reasons are in the table.
    logging.getLogger("ludic_train").setLevel(logging.ERROR)
    table = Table("type", "scored, nats", "rows", "reloaded", "sampled, nats", "steps")
    kept = []
    for name in args.names:
        found = measured(name)
        kept.append(asdict(found))
        reloaded = "equal" if found.reloaded else "differs"
        sizes = f"{found.scored:.1g}", f"{found.sampled:.1g}"
        table.add_row(name, sizes[0], found.rows, reloaded, sizes[1], found.steps)
    Console().print(table)
    save("architectures", kept)


def measured(name: str) -> Found:
    """All that is asked of a model type."""
    # With rows that are no tokens, as many models have.
    model = made(name, vocab_size=512)
    with torch.no_grad():
        for param in model.parameters():
            # States of larger params multiply rounding.
            param.mul_(0.5)
    tokenizer = make_tokenizer(["1 2 X\n4 O 6\n7 8 9"])
    engine = Engine(model, tokenizer, max_batch_size=5)
    return Found(
        name=name,
        scored=logprob_difference(model)[0],
        rows=reason_not_to_pack(model) or "packed",
        reloaded=is_reloaded(model, tokenizer),
        sampled=greatest_difference(model, sampled(engine)),
        steps=STEPS[type(engine._decoder).__name__],
    )


def is_reloaded(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> bool:
    """True if all params and buffers have equal bits once the model is saved and read back."""
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, tokenizer, folder)
        again = load_model(folder)[0]
        one, other = (
            {**dict(m.named_parameters()), **dict(m.named_buffers())} for m in (model, again)
        )
        return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def sampled(engine: Engine) -> list[Completion]:
    """Completions of texts of 1 to 40 tokens, 2 to 24 more each."""
    rng = random.Random(0)
    for seed in range(12):
        prompt = tuple(rng.randint(3, 127) for _ in range(rng.randint(1, 40)))
        sampling = Sampling(seed=seed, max_tokens=rng.randint(2, 24))
        engine.add(Request(prompt_ids=prompt, sampling=sampling))
    found: list[Completion] = []
    while not engine.is_idle:
        found += [completion for _, completion in engine.advance()]
    return found


@torch.no_grad()
def greatest_difference(model: PreTrainedModel, completions: Sequence[Completion]) -> float:
    """Nats between the engine's log-probs and the trainer's."""
    worst = 0.0
    for each in completions:
        ids = torch.tensor([[*each.prompt_ids, *each.completion_ids]])
        column = torch.arange(len(each.prompt_ids), ids.shape[1])
        ones = torch.ones(len(column))
        own = action_logprobs(model, ids, torch.zeros_like(column), column, ones).logprobs
        worst = max(worst, float((own - torch.tensor(each.logprobs)).abs().max()))
    return worst


if __name__ == "__main__":
    main()
