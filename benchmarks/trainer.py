"""Trained tokens per second, beside a hand-made torch loop and TRL.

    python benchmarks/trainer.py [--threads 1] [--repeats 3] [--seconds 20]
        [--trl-python VENV/bin/python]

The hand-made loop is a good one: rows sorted by length, padded micro-batches of as many tokens as
ours, logits of sampled tokens alone, log_softmax, gather, backward, clip, AdamW; it reports no
entropy, no distance to the sampler, and knows neither groups nor turns. TRL's GRPOTrainer runs in
an environment of its own (pip install trl), on the same model and the same rows, sampling left out,
in the number of sorted micro-batches that is fastest for it (benchmarks/peers/trl_grpo.py).
Every number is the median of `repeats`, ours and the loop's in turns, of which none begins after
`seconds`; in CPU seconds where there is one thread, so that other programs' load does not count.
Compare ratios.

A ten-turn episode is one row here. TRL is shown it as one row as well, which its tool mask makes
possible, and with the smaller model as a row per turn, which is what single-turn recipes make.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from rates import Rate, budget, kept_line, rate_of, rates_in_turns, ratio_of, save
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

import ludic_gym  # noqa: F401 - registers the environments
from ludic_train.algorithms.presets import grpo
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.trainer.config import Guards, TrainerConfig
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import SAWItem

LENGTHS = {
    "256 rows of 22 tokens": [22] * 256,
    "64 rows of 8 to 256 tokens": [8 + 248 * i * i // 63**2 for i in range(64)],
    "64 rows of 20 to 1000 tokens, lognormal": [
        int(n) for n in np.clip(np.random.default_rng(1).lognormal(4.2, 1.0, 64), 20, 1000)
    ],
}
TURNS, SAID, SAMPLED = 10, 20, 10
EPISODES = "16 episodes of 10 turns"
PER_TURN = "a row per turn"
BUDGET = 4096
BY_HAND = "loop by hand"
SMALL, LARGE = "0.1M params", "11M params, vocabulary of 32k"
LARGER = {
    "vocab_size": 32_000,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "tie_word_embeddings": True,
}


def sampled_tail(length: int) -> np.ndarray:
    return np.arange(length) >= length - max(length // 3, 1)


def turns(count: int) -> np.ndarray:
    """The action mask of an episode: what is said to the model, what it samples, and again."""
    return np.tile(np.arange(SAID + SAMPLED) >= SAID, count)


def rows(masks: list[np.ndarray]) -> list[SAWItem]:
    """Random rows, sampled where the masks say."""
    rng = np.random.default_rng(0)
    made = []
    for mask in masks:
        length = len(mask)
        weight = np.where(mask, rng.normal(), 0).astype(np.float32)
        made.append(
            SAWItem(
                input_ids=rng.integers(3, 250, length).astype(np.int32),
                action_mask=mask,
                weight=weight,
                behavior_logprobs=np.where(mask, -5.5, 0).astype(np.float32),
            )
        )
    return made


def hand_made_update(
    model: PreTrainedModel, optimizer: torch.optim.Optimizer, items: list[SAWItem]
) -> None:
    """The same clipped surrogate, in micro-batches of rows of similar length."""
    chunks: list[list[SAWItem]] = [[]]
    # Shortest first, so that the row at hand is the widest of its chunk.
    for item in sorted(items, key=lambda item: len(item.input_ids)):
        if (len(chunks[-1]) + 1) * len(item.input_ids) > BUDGET:
            chunks.append([])
        chunks[-1].append(item)
    optimizer.zero_grad()
    total = sum(int(item.action_mask.sum()) for item in items)
    for chunk in chunks:
        surrogate(model, chunk, total).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def surrogate(model: PreTrainedModel, items: list[SAWItem], total: int) -> torch.Tensor:
    """The loss of a micro-batch, as its share of `total` sampled tokens."""
    width = max(len(item.input_ids) for item in items)

    def padded(arrays: list[np.ndarray]) -> torch.Tensor:
        rows = [torch.from_numpy(np.pad(array, (0, width - len(array)))) for array in arrays]
        return torch.stack(rows)

    ids = padded([item.input_ids.astype(np.int64) for item in items])
    mask = padded([item.action_mask for item in items])[:, 1:]
    weight = padded([item.weight for item in items])[:, 1:][mask]
    old = padded([item.behavior_logprobs for item in items])[:, 1:][mask]
    # Padding is on the right, so causal attention needs no mask.
    hidden = model.get_decoder()(input_ids=ids[:, :-1], use_cache=False)[0]
    logits = model.get_output_embeddings()(hidden[mask])
    logprobs = logits.log_softmax(-1).gather(-1, ids[:, 1:][mask][:, None])[:, 0]
    ratio = (logprobs - old).exp()
    return -torch.minimum(ratio * weight, ratio.clamp(0.8, 1.2) * weight).sum() / total


def made(size: str) -> PreTrainedModel:
    """A model with random weights, the same for each call."""
    torch.manual_seed(0)
    if size == SMALL:
        return make_tiny_model(make_tokenizer(["a b c"]))
    return LlamaForCausalLM(LlamaConfig(**LARGER)).eval()


def trained_rates(
    size: str, items: list[SAWItem], repeats: int, enough_s: float
) -> dict[str, Rate]:
    """Tokens per second of Ludic's trainer ("ours") and of the hand-made loop."""
    model = made(size)
    guards = Guards(max_kl_at_lag_0=None)
    cfg = TrainerConfig(micro_token_budget=BUDGET, guards=guards)
    trainer = Trainer(model, grpo(), None, cfg=cfg)
    tokens = sum(len(item.input_ids) for item in items)
    other = made(size)
    optimizer = torch.optim.AdamW(other.parameters(), lr=1e-5, fused=True)

    def ours() -> int:
        trainer.update(items)
        return tokens

    def by_hand() -> int:
        hand_made_update(other, optimizer, items)
        return tokens

    # The first update probes the model. Of the larger one, it takes seconds for all rows.
    trainer.update(items[:4])
    hand_made_update(other, optimizer, items[:4])
    found = rates_in_turns([ours, by_hand], repeats, warm_up=size == SMALL, enough_s=enough_s)
    return dict(zip(("ours", BY_HAND), found, strict=True))


def trl_rates(
    model: PreTrainedModel, batches: dict[str, list[SAWItem]], args: argparse.Namespace
) -> dict[str, tuple[str, Rate]]:
    """Name of TRL's best way on each batch, and its rate of updates."""
    plain = {
        name: [
            {
                "ids": item.input_ids.tolist(),
                "mask": item.action_mask.tolist(),
                "old": item.behavior_logprobs.tolist(),
                "advantage": float(item.weight[item.action_mask][0]),
            }
            for item in items
        ]
        for name, items in batches.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model").mkdir()
        save_model(model, make_tokenizer(["a b c"]), Path(folder) / "model")
        (Path(folder) / "batches.json").write_text(json.dumps(plain))
        program = Path(__file__).parent / "peers" / "trl_grpo.py"
        where = ["--threads", str(torch.get_num_threads())]
        arguments = [folder, str(args.repeats + 1), *where, "--counts", *args.trl_micro_batches]
        subprocess.run([args.trl_python, program, *arguments], check=True, stdout=sys.stderr)
        found = json.loads((Path(folder) / "found.json").read_text())
    return {
        name: (
            f"TRL {found['version']}, {each['micro_batches']} micro-batches",
            rate_of(1.0, each["seconds"]),
        )
        for name, each in found["batches"].items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=budget(3, 1))
    parser.add_argument("--seconds", type=float, default=20.0, help="of a load")
    parser.add_argument("--sizes", nargs="+", choices=(SMALL, LARGE), default=(SMALL, LARGE))
    parser.add_argument("--trl-python", help="an interpreter that can import trl")
    parser.add_argument(
        "--trl-micro-batches",
        nargs="+",
        default=("1", "2", "4", "8", "16"),
        help="numbers of micro-batches of which TRL's fastest counts",
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    batches = {name: rows([sampled_tail(n) for n in ns]) for name, ns in LENGTHS.items()}
    batches[EPISODES] = rows([turns(TURNS)] * 16)
    kept: dict[str, list[object]] = {"updates": [], "updates_trl": []}
    table = Table("useful tokens/s", "Ludic", "beside it", "its rate", "ratio")
    for size in args.sizes:
        # With the larger model, an update of a row per turn takes TRL a minute.
        for_peer = batches | ({PER_TURN: per_turn()} if size == SMALL else {})
        peer = trl_rates(made(size), for_peer, args) if args.trl_python else {}
        for name, items in batches.items():
            for where, line in compared(table, size, name, items, peer, args):
                kept[where].append(line)
    for where, lines in kept.items():
        # Figures beside TRL of an earlier run stay where there is no TRL.
        if lines:
            save(where, lines)
    Console().print(table)


def per_turn() -> list[SAWItem]:
    """A row for each turn of the episodes: the turns before it are the prompt."""
    made = rows([turns(k)[: k * (SAID + SAMPLED)] for k in range(1, TURNS + 1)] * 16)
    for item in made:
        item.action_mask[:-SAMPLED] = False
    return made


def compared(
    table: Table,
    size: str,
    name: str,
    items: list[SAWItem],
    peer: dict[str, tuple[str, Rate]],
    args: argparse.Namespace,
) -> Iterator[tuple[str, dict[str, object]]]:
    """Lines of a batch beside the loop by hand and TRL, with the names of their results; shown."""
    tokens = sum(len(item.input_ids) for item in items)
    found = trained_rates(size, items, args.repeats, args.seconds)
    goal = 0.97 if size == SMALL else 0.95
    beside = [("updates", "", found, goal)]
    for batch, note in (name, ""), (PER_TURN, f", {PER_TURN} in TRL"):
        if batch in peer and (not note or name == EPISODES):
            way, updates = peer[batch]
            rate = Rate(tokens * updates.median, tokens * updates.best)
            beside.append(("updates_trl", note, {"ours": found["ours"], way: rate}, 0.0))
    for where, note, both, goal_ratio in beside:
        what = f"update, {size}: {name}{note}"
        (_, ours), (other, theirs) = both.items()
        ratio = f"{ratio_of(ours, theirs):.2f}"
        table.add_row(what, f"{ours.median:,.0f}", other, f"{theirs.median:,.0f}", ratio)
        yield where, kept_line(what, both, goal_ratio=goal_ratio)


if __name__ == "__main__":
    main()
