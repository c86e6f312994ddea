"""Supervised training on recorded games: a new model of 0.1M parameters imitates what was played.

    python examples/tic_tac_toe/make_sft_data.py --episodes 4000 --out data/perfect.jsonl
    python examples/tic_tac_toe/train_sft.py --data data/perfect.jsonl --out runs/sft
    ludic play ludic/TicTacToe-v0 --against runs/sft --seat second

Without --data the games are played first. The folder it saves is a policy for `ludic bench` and
`ludic play`, and a model to go on from for `ludic train tic-tac-toe --model`.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from make_sft_data import make

from ludic_gym.contexts import LatestObservation
from ludic_gym.records import read_rollouts
from ludic_gym.types import Rollout
from ludic_train.algorithms.presets import sft
from ludic_train.inference.policy_spec import PolicySpec, write_policy_spec
from ludic_train.metrics import Metrics
from ludic_train.models.chat_template import with_token_ids
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.sources.recorded import recorded_items
from ludic_train.trainer.trainer import Trainer, TrainerConfig

SPEC = PolicySpec(context="latest", system_prompt="", max_tokens=8)


async def train(rollouts: list[Rollout], updates: int, out: Path | None) -> None:
    """Imitate every move, and save the model with how it has to be asked."""
    texts = [step.observation for rollout in rollouts[:200] for step in rollout.steps]
    tokenizer = make_tokenizer(texts)
    model = make_tiny_model(tokenizer)

    def render(rollout: Rollout) -> Rollout:
        return with_token_ids(rollout, tokenizer, LatestObservation())

    algo = sft()
    items = recorded_items(rollouts, algo, render=render)
    source = OfflineBatchSource(items, batch_size=min(128, len(items)), seed=0)
    cfg = TrainerConfig(lr=3e-3, warmup_updates=20, decay_updates=updates)
    trainer = Trainer(model, algo, source, cfg=cfg)

    def report(update: int, metrics: Metrics) -> None:
        # What is imitated has no log-probs to compare with; its own say how well it fits.
        print(f"update {update:3d}  nll {metrics['nll'].value:.3f}", flush=True)

    await trainer.train(updates, on_update=report)
    if out is not None:
        save_model(model, tokenizer, out / "model")
        write_policy_spec(out, SPEC)


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
        asyncio.run(train(list(read_rollouts(data)), args.updates, args.out))
