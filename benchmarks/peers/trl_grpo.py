"""Seconds per update of TRL's GRPOTrainer on a model and batches that benchmarks/trainer.py made.

Started by that program, in an environment that has TRL: `python trl_grpo.py FOLDER UPDATES`.
Everything but sampling is TRL's own: only the step that would sample is replaced, by the batch.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


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
    """Trains on `batch` again and again."""

    def _prepare_inputs(self, inputs: object) -> dict[str, torch.Tensor]:
        return self.batch


def padded(rows: list[np.ndarray], left: bool = False) -> torch.Tensor:
    width = max(map(len, rows))
    pads = [(width - len(row), 0) if left else (0, width - len(row)) for row in rows]
    return torch.from_numpy(np.stack([np.pad(r, pad) for r, pad in zip(rows, pads, strict=True)]))


def batch_of(rows: list[dict[str, list[float]]]) -> dict[str, torch.Tensor]:
    """TRL's form: prompts padded on the left, everything after them on the right."""
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
        "num_items_in_batch": torch.tensor(float(sum(sum(row["mask"]) for row in rows))),
    }


def seconds_per_update(folder: Path, rows: list[dict[str, list[float]]], updates: int) -> float:
    clock = Clock()
    config = GRPOConfig(
        output_dir=str(folder / "trl"),
        per_device_train_batch_size=len(rows),
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
        model=AutoModelForCausalLM.from_pretrained(folder / "model"),
        reward_funcs=lambda completions, **kwargs: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["a"] * len(rows)}),
        processing_class=AutoTokenizer.from_pretrained(folder / "model"),
        callbacks=[clock],
    )
    trainer.batch = batch_of(rows)
    trainer.train()
    return min(clock.seconds)


def main() -> None:
    folder, updates = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(int(sys.argv[3]))
    batches = json.loads((folder / "batches.json").read_text())
    found = {name: seconds_per_update(folder, rows, updates) for name, rows in batches.items()}
    (folder / "seconds.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
