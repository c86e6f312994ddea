"""Self-play: one policy sits on both seats of Tic-Tac-Toe and learns from both.

    python examples/self_play/train_self_play.py [--updates 300]

The seats are not equally good, so each has a baseline of its own: a running mean of what it
earned (SPIRAL, Liu et al. 2025, arXiv:2506.24119). The model first imitates random legal moves;
an illegal one loses. Both seats playing perfectly, every game is a draw.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Mapping
from itertools import count, islice
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ludic_gym.contexts import LatestObservation
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.reference import RandomPolicy
from ludic_gym.rollout.episodes import fixed_seats, run_matches
from ludic_gym.types import Rollout, Sampling, Task
from ludic_train.algorithms.presets import RLAlgorithm, self_play, sft
from ludic_train.inference.client import LocalChatClient
from ludic_train.metrics import Metrics, Stat
from ludic_train.models.chat_template import with_token_ids
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.publishers.base import InProcessPublisher
from ludic_train.rows import items_from
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.sources.recorded import recorded_items
from ludic_train.trainer.trainer import Trainer, TrainerConfig
from ludic_train.types import SAWBatch

ENV_ID = "ludic/TicTacToe-v0"
CELLS = [f"{row}{column}" for row in "ABC" for column in "123"]
IMITATION = 150


def games() -> Iterator[Task]:
    """Games without end, each sampled with seeds of its own."""
    for i in count():
        yield Task(env_id=ENV_ID, seed=i, sampling=Sampling(max_tokens=2, seed=i))


class SelfPlaySource:
    """Batches of games in which the same client plays every seat."""

    def __init__(self, client: LocalChatClient, algo: RLAlgorithm, batch: int) -> None:
        self._client = client
        self._algo = algo
        self._batch = batch
        self._games = games()
        self._taken = 0

    async def next_batch(self) -> SAWBatch:
        """The rows of both seats of the next games."""
        tasks = list(islice(self._games, self._batch))
        self._taken += self._batch
        players = dict.fromkeys(("player_0", "player_1"), self._player)
        rollouts: list[Rollout] = []
        async for episode in run_matches(tasks, players, seating=fixed_seats, concurrency=256):
            if episode.error is None:
                rollouts += episode.rollouts
        ends = [rollout.steps[-1].info.get("outcome") for rollout in rollouts]
        # A game ends in one player's illegal move, but in a draw for both.
        metrics = {
            "illegal": Stat(2 * ends.count("illegal"), len(ends)),
            "draw": Stat(ends.count("draw"), len(ends)),
        }
        items = items_from(rollouts, self._algo.credit(rollouts))
        return SAWBatch(items=tuple(items), metrics=metrics)

    def _player(self, env: object) -> ChatPolicy:
        return ChatPolicy(self._client, LatestObservation(), system_prompt="")

    def state_dict(self) -> dict[str, Any]:
        """How many games were played."""
        return {"taken": self._taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the game after those."""
        self._taken += sum(1 for _ in islice(self._games, state["taken"] - self._taken))


async def random_games(count: int) -> list[Rollout]:
    """Both seats of games with random legal moves."""
    tasks = (Task(env_id=ENV_ID, seed=i, sampling=Sampling(seed=i)) for i in range(count))
    players = {"player_0": RandomPolicy, "player_1": RandomPolicy}
    return [rollout async for game in run_matches(tasks, players) for rollout in game.rollouts]


async def imitate(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Learn from random games what a move is."""

    def render(rollout: Rollout) -> Rollout:
        return with_token_ids(rollout, tokenizer, LatestObservation())

    items = recorded_items(await random_games(500), sft(), render=render)
    source = OfflineBatchSource(items, batch_size=128, seed=0)
    await Trainer(model, sft(), source, cfg=TrainerConfig(lr=3e-3)).train(IMITATION)


async def train(updates: int) -> float:
    """The share of games that ended with an illegal move, in the last batch."""
    tokenizer = make_tokenizer([" ".join(CELLS), "X O"])
    model = make_tiny_model(tokenizer)
    await imitate(model, tokenizer)
    client = LocalChatClient(model, tokenizer)
    algo = self_play(entropy=0.01)
    source = SelfPlaySource(client, algo, batch=512)
    trainer = Trainer(model, algo, source, InProcessPublisher(client), TrainerConfig(lr=1e-4))
    illegal = 1.0

    def report(update: int, metrics: Metrics) -> None:
        nonlocal illegal
        illegal, draw = metrics["illegal"].value, metrics["draw"].value
        print(f"update {update:3d}  illegal {illegal:.1%}  draw {draw:.1%}", flush=True)

    await trainer.train(updates, on_update=report)
    return illegal


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=300)
    asyncio.run(train(parser.parse_args().updates))
