"""Supervised fine-tuning of a new model of 0.1M parameters on recorded games.

    python examples/tic_tac_toe/make_sft_data.py --episodes 4000 --out data/perfect.jsonl
    python examples/tic_tac_toe/train_sft.py --data data/perfect.jsonl --out runs/sft
    ludic play ludic/TicTacToe-v0 --against runs/sft --seat second

Without --data the games are played first. The folder it saves is a policy for `ludic bench` and
`ludic play`, and a model for `ludic train tic-tac-toe --model`.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from make_sft_data import make

import ludic_gym as lg
import ludic_train as lt

SPEC = lg.Harness(context="latest", system_prompt="", reply_tokens=8)


async def train(rollouts: list[lg.Rollout], updates: int, out: Path | None) -> None:
    """Imitate every move, and save the model with its prompts."""
    texts = [step.observation for rollout in rollouts[:200] for step in rollout.steps]
    tokenizer = lt.make_tokenizer(texts)
    model = lt.make_tiny_model(tokenizer)

    def render(rollout: lg.Rollout) -> lg.Rollout:
        return lt.with_token_ids(rollout, tokenizer, lg.LatestObservation())

    known = lt.recorded_rollouts(rollouts, render=render)
    source = lt.OfflineBatchSource(known, batch_size=128)
    cfg = lt.TrainerConfig(lr=3e-3, warmup_updates=20, decay_updates=updates)
    trainer = lt.Trainer(model, lt.sft(), source, cfg=cfg)

    def report(update: int, metrics: lt.Metrics) -> None:
        print(f"update {update:3d}  nll {metrics['nll'].value:.3f}", flush=True)

    await trainer.train(updates, on_update=report)
    if out is not None:
        lt.save_model(model, tokenizer, out / "model")
        lg.write_harness(out, SPEC)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="records of episodes; left out, 200 new games")
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--out", type=Path, help="the folder of the policy")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = args.data or Path(folder) / "games.jsonl"
        if args.data is None:
            asyncio.run(make(200, data))
        asyncio.run(train(list(lg.read_rollouts(data)), args.updates, args.out))
