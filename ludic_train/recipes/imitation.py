"""Supervised fine-tuning on rollouts that somebody else played."""

from __future__ import annotations

from collections.abc import Sequence

from ludic_gym.types import Rollout
from ludic_train.algorithms import make_sft
from ludic_train.recipes.learner import Learner
from ludic_train.recipes.run import Stage
from ludic_train.saw import items_from, with_token_ids
from ludic_train.sources import OfflineBatchSource
from ludic_train.trainer import Trainer, TrainerConfig


def imitation(
    learner: Learner,
    demonstrations: Sequence[Rollout],
    *,
    updates: int,
    lr: float,
    batch_size: int,
    seed: int,
    reply: str = "{}",
) -> Stage:
    """A stage that makes the learner answer as in `demonstrations`, every step alike.

    reply: what the learner is to write for an action, such as "<answer>{}</answer>".
    """
    shown = [
        with_token_ids(rollout, learner.tokenizer, learner.new_context(), reply=reply)
        for rollout in demonstrations
    ]
    algo = make_sft()
    items = items_from(shown, algo.credit_assigner(shown))
    source = OfflineBatchSource(items, batch_size=batch_size, seed=seed)
    cfg = TrainerConfig(lr=lr, warmup_updates=20, decay_updates=updates, seed=seed)
    trainer = Trainer(learner.model, algo, source, learner.publisher, cfg)
    return Stage(name="imitation", trainer=trainer, updates=updates)
