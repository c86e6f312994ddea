"""Seconds per update of TRL's GRPOTrainer on a model and batches that benchmarks/trainer.py made.

Started by that program, where TRL is installed:
`python trl_grpo.py FOLDER UPDATES --threads 1 --counts 1 2 4`.
Everything but sampling is TRL's own: the step that would sample, shuffle and cut the batch gives
micro-batches of rows of similar length instead, each padded to its own width. That is better than
what TRL does, which pads all rows of a batch to its longest. Several numbers of micro-batches are
tried, each in two updates of which the second counts; the fastest is then measured.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

Row = dict[str, list[float]]


def clock() -> float:
    """CPU seconds of this process, or with several threads seconds of the wall."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


class Clock(TrainerCallback):
    """Takes the time of each optimizer step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *args: object, **kwargs: object) -> None:
        """Start."""
        self.started = clock()

    def on_step_end(self, *args: object, **kwargs: object) -> None:
        """Stop."""
        self.seconds.append(clock() - self.started)


class WithoutSampling(GRPOTrainer):
    """Trains on `micro_batches` again and again, all of them in each update."""

    def _prepare_inputs(self, inputs: object) -> dict[str, torch.Tensor]:
        return self.micro_batches[self._step % len(self.micro_batches)]


def padded(rows: list[np.ndarray], left: bool = False) -> torch.Tensor:
    width = max(map(len, rows))
    pads = [(width - len(row), 0) if left else (0, width - len(row)) for row in rows]
    return torch.from_numpy(np.stack([np.pad(r, pad) for r, pad in zip(rows, pads, strict=True)]))


def batch_of(rows: list[Row], sampled: int) -> dict[str, torch.Tensor]:
    """TRL's form: prompts padded on the left, everything after them on the right.

    sampled: tokens of the update that were sampled.
    """
    starts = [row["mask"].index(True) for row in rows]
    ids = [np.array(row["ids"]) for row in rows]
    pairs = list(zip(ids, starts, strict=True))
    tails = list(zip(rows, starts, strict=True))
    return {
        "prompt_ids": padded([i[:s] for i, s in pairs], left=True),
        "prompt_mask": padded([np.ones(s, np.int64) for s in starts], left=True),
        "completion_ids": padded([i[s:] for i, s in pairs]),
        "completion_mask": padded([np.ones(len(i) - s, np.int64) for i, s in pairs]),
        "tool_mask": padded([np.array(r["mask"][s:], np.int64) for r, s in tails]),
        "old_per_token_logps": padded([np.array(r["old"][s:], np.float32) for r, s in tails]),
        "advantages": torch.tensor([row["advantage"] for row in rows], dtype=torch.float32),
        "num_items_in_batch": torch.tensor(float(sampled)),
    }


def micro_batches_of(rows: list[Row], count: int) -> list[dict[str, torch.Tensor]]:
    """Equally many rows in each, by length."""
    by_length = sorted(rows, key=lambda row: len(row["ids"]))
    sampled, size = sum(sum(row["mask"]) for row in rows), len(rows) // count
    return [batch_of(by_length[at : at + size], sampled) for at in range(0, len(rows), size)]


def seconds_of_updates(
    args: argparse.Namespace, model: PreTrainedModel, rows: list[Row], updates: int, count: int
) -> list[float]:
    """Seconds of each update but the first, from so many micro-batches."""
    clock = Clock()
    config = GRPOConfig(
        output_dir=str(args.folder / "trl"),
        per_device_train_batch_size=len(rows) // count,
        gradient_accumulation_steps=count,
        num_generations=len(rows),
        max_steps=updates,
        learning_rate=1e-5,
        beta=0.0,
        loss_type="grpo",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        max_grad_norm=1.0,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = WithoutSampling(
        model=copy.deepcopy(model),
        reward_funcs=lambda completions, **kwargs: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["a"] * len(rows)}),
        processing_class=AutoTokenizer.from_pretrained(args.folder / "model"),
        callbacks=[clock],
    )
    trainer.micro_batches = micro_batches_of(rows, count)
    trainer.train()
    return clock.seconds[1:]


def best(args: argparse.Namespace, model: PreTrainedModel, rows: list[Row]) -> dict[str, object]:
    """The number of micro-batches whose update is fastest, and seconds of its updates."""
    tried = {}
    for count in args.counts:
        (tried[count],) = seconds_of_updates(args, model, rows, 2, count)
        print(f"{len(rows)} rows, {count} micro-batches: {tried[count]:.3f} s", flush=True)
    fastest = min(tried, key=tried.__getitem__)
    seconds = seconds_of_updates(args, model, rows, args.updates, fastest)
    print(
        f"{len(rows)} rows, {fastest} micro-batches: {median(seconds):.3f} s, the best", flush=True
    )
    return {"micro_batches": fastest, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("updates", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--counts", nargs="+", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    batches = json.loads((args.folder / "batches.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(args.folder / "model", dtype=torch.float32)
    found = {name: best(args, model, rows) for name, rows in batches.items()}
    report = {"version": trl.__version__, "batches": found}
    (args.folder / "found.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
