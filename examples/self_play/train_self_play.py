"""Self-play: one policy sits on both seats of Tic-Tac-Toe and learns from both.

    python examples/self_play/train_self_play.py [--updates 300]

The seats are not equally good, so each has a baseline of its own: a running mean of its returns
(SPIRAL, Liu et al. 2025, arXiv:2506.24119). The model first imitates random legal moves; an illegal
one loses. Both seats playing perfectly, every game is a draw.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from itertools import count

from transformers import PreTrainedModel, PreTrainedTokenizerBase

import ludic_gym as lg
import ludic_train as lt

ENV_ID = "ludic/TicTacToe-v0"
CELLS = [f"{row}{column}" for row in "ABC" for column in "123"]


def endings(rollouts: Sequence[lg.Rollout]) -> lt.Metrics:
    """Shares of the games that end in an illegal move of either player, and in a draw."""
    ends = [rollout.steps[-1].info.get("outcome") for rollout in rollouts]
    # A game ends in one player's illegal move, but in a draw for both.
    return {
        "illegal": lt.Stat(2 * ends.count("illegal"), len(ends)),
        "draw": lt.Stat(ends.count("draw"), len(ends)),
    }


async def imitate(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, games: int, updates: int
) -> None:
    """Learn the form of a move from random games."""
    tasks = (lg.Task(env_id=ENV_ID, seed=i, sampling=lg.Sampling(seed=i)) for i in range(games))
    rollouts = [
        lt.with_token_ids(rollout, tokenizer, lg.LatestObservation())
        async for game in lg.run_matches(tasks, lg.RandomPolicy)
        for rollout in game.rollouts
    ]
    source = lt.OfflineBatchSource(rollouts, batch_size=128)
    await lt.Trainer(model, lt.sft(), source, cfg=lt.TrainerConfig(lr=3e-3)).train(updates)


async def train(updates: int) -> None:
    """Imitate, then play; prints how the games of every batch end."""
    tokenizer = lt.make_tokenizer([" ".join(CELLS), "X O"])
    model = lt.make_tiny_model(tokenizer)
    await imitate(model, tokenizer, games=500, updates=150)
    client = lt.LocalChatClient(model, tokenizer)
    games = (
        lg.Task(env_id=ENV_ID, seed=i, sampling=lg.Sampling(max_tokens=2, seed=i)) for i in count()
    )
    play = lt.Matches(
        players=lambda env: lg.ChatPolicy(client, lg.LatestObservation(), system_prompt="")
    )
    source = lt.RolloutBatchSource(games, play, groups_per_batch=512, reducer=endings)
    algo, cfg = lt.self_play(entropy=0.01), lt.TrainerConfig(lr=1e-4)
    trainer = lt.Trainer(model, algo, source, lt.InProcessPublisher(client), cfg)

    def report(update: int, metrics: lt.Metrics) -> None:
        illegal, draw = metrics["illegal"].value, metrics["draw"].value
        print(f"update {update:3d}  illegal {illegal:.1%}  draw {draw:.1%}", flush=True)

    await trainer.train(updates, on_update=report)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=300)
    asyncio.run(train(parser.parse_args().updates))
