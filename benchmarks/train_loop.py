"""CPU-seconds of `ludic train tic-tac-toe` beside a minimal loop by hand that does the same work.

    python benchmarks/train_loop.py [--demonstrations 400] [--imitate 20] [--batches 2]

The recipe of the command, shortened, without evaluations. Both learn in both seats, each step in
parts:

    demonstrations   games of perfect play, as tokens; ours makes tokenizer and model besides
    imitation        updates of 128 turns
    playing          64 groups of 16 games a batch; the model samples replies with their log-probs
    learning         four updates a batch

The loop by hand knows this game alone: rules as functions of a string, prompts from a dictionary by
board, all games in step, each different text read once, no cache of keys. Its updates are those of
trainer.py, on the very rows that ours trained on. It records no episodes, and reports nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from harness.rates import budget, save
from torch import nn
from trainer import hand_made_update
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ludic_gym.envs.games import tic_tac_toe as game
from ludic_gym.types import Message
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.models.chat_template import render_chat
from ludic_train.recipes.catalog import TIC_TAC_TOE
from ludic_train.runs.config import RunConfig
from ludic_train.runs.learner import Learner
from ludic_train.runs.machine import Machine
from ludic_train.runs.run import Stage
from ludic_train.runs.stages import made_learner, rl_stage, sft_stage
from ludic_train.sources.base import BatchSource
from ludic_train.types import SAWBatch, SAWItem

# Of the loop's seconds, at most.
GOAL = 1.25
PARTS = ("demonstrations", "imitation", "playing", "learning")
Seconds = Counter[str]
Ids = tuple[int, ...]


class Timed:
    """A source that keeps its batches, and adds the CPU time that they took."""

    def __init__(self, inner: BatchSource, seconds: Seconds, part: str) -> None:
        self._inner, self._seconds, self._part = inner, seconds, part
        self.batches: list[Sequence[SAWItem]] = []

    async def next_batch(self, algo: RLAlgorithm) -> SAWBatch:
        """The next batch."""
        with added(self._seconds, self._part):
            batch = await self._inner.next_batch(algo)
        self.batches.append(batch.items)
        return batch

    def state_dict(self) -> dict[str, Any]:
        """That of the inner source."""
        return self._inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the inner source stood."""
        self._inner.load_state_dict(state)


@contextmanager
def added(seconds: Seconds, part: str) -> Iterator[None]:
    """A context whose CPU time is added to the part."""
    began = time.process_time()
    yield
    seconds[part] += time.process_time() - began


async def ours(config: RunConfig) -> tuple[Learner, list[Timed], Seconds]:
    """The learner after the recipe's two stages, their batches, and the seconds of the parts."""
    seconds: Seconds = Counter()
    with added(seconds, "demonstrations"):
        learner, demonstrations = await made_learner(TIC_TAC_TOE, config, Machine())
        imitation = sft_stage(TIC_TAC_TOE, config, learner, demonstrations)
    first = await trained(imitation, seconds, "imitation", "imitation")
    stage = rl_stage(TIC_TAC_TOE, config, learner)
    return learner, [first, await trained(stage, seconds, "playing", "learning")], seconds


async def trained(stage: Stage, seconds: Seconds, of_batch: str, of_update: str) -> Timed:
    """The source of a stage that was carried out."""
    source = Timed(stage.trainer.batch_source, seconds, of_batch)
    stage.trainer.batch_source = source
    before = seconds[of_batch]
    with added(seconds, of_update):
        await stage.trainer.train(stage.updates)
    if of_batch != of_update:
        seconds[of_update] -= seconds[of_batch] - before
    return source


def by_hand(learner: Learner, stages: Sequence[Timed], config: RunConfig) -> Seconds:
    """Seconds of the same work by the loop by hand, on a model of the same shape."""
    seconds: Seconds = Counter()
    model, tokenizer = learner.model, learner.tokenizer
    # Another one's state would not matter, and the params are only moved on.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    limit, rng = learner.spec.max_tokens or 1, np.random.default_rng(0)
    imitated, learned = stages
    # Of demonstrations there are none, and the loop's loss costs the same with any.
    shown = [[replace(i, behavior_logprobs=0 * i.weight) for i in b] for b in imitated.batches]
    with added(seconds, "demonstrations"):
        demonstrated(config.demonstrations, tokenizer, rng)
    with added(seconds, "imitation"):
        for items in shown:
            hand_made_update(model, optimizer, items)
    for items in learned.batches:
        with added(seconds, "playing"):
            played(model, tokenizer, config.groups * config.group_size, limit, rng)
        with added(seconds, "learning"):
            for rows in np.array_split(np.arange(len(items)), config.minibatches):
                hand_made_update(model, optimizer, [items[i] for i in rows])
    return seconds


def demonstrated(
    games: int, tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator
) -> list[Ids]:
    """Tokens of each turn of perfect play, half of the games in each seat."""
    found = []
    for number in range(games):
        board, perfect = game.FREE * 9, bool(rng.integers(2))
        while game.returns(board) is None:
            best = game.SOLUTION.best_actions(board)
            if game.mover(board) != number % 2:
                board = game.play(board, rival_move(board, perfect, rng))
                continue
            action = str(rng.choice(best))
            found.append((*prompt_of(tokenizer, board), *reply_of(tokenizer, action)))
            board = game.play(board, action)
    return found


def played(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    games: int,
    limit: int,
    rng: np.random.Generator,
) -> list[tuple[Ids, list[float], float]]:
    """Turns of so many games in step: tokens, log-probs of the reply, and the game's reward."""
    turns: list[list[tuple[Ids, list[float]]]] = [[] for _ in range(games)]
    perfect, rewards = rng.integers(2, size=games), [0.0] * games
    boards = [opened(number % 2, bool(perfect[number]), rng) for number in range(games)]
    running = list(range(games))
    while running:
        prompts = [prompt_of(tokenizer, boards[i]) for i in running]
        replies = sampled(model, prompts, limit, tokenizer.eos_token_id)
        left = []
        for i, prompt, (ids, logprobs) in zip(running, prompts, replies, strict=True):
            turns[i].append(((*prompt, *ids), logprobs))
            text = tokenizer.decode(ids, skip_special_tokens=True)
            action = "".join(text.split()).upper()
            if action not in game.legal_actions(boards[i]):
                rewards[i] = -1.0
                continue
            boards[i] = game.play(boards[i], action)
            if game.returns(boards[i]) is None:
                boards[i] = game.play(boards[i], rival_move(boards[i], bool(perfect[i]), rng))
            if (ended := game.returns(boards[i])) is None:
                left.append(i)
            else:
                rewards[i] = ended[i % 2] or 0.5
        running = left
    return [(*turn, rewards[i]) for i, own in enumerate(turns) for turn in own]


def opened(seat: int, perfect: bool, rng: np.random.Generator) -> str:
    """The board before the first move of a seat."""
    board = game.FREE * 9
    return game.play(board, rival_move(board, perfect, rng)) if seat else board


def rival_move(board: str, perfect: bool, rng: np.random.Generator) -> str:
    """A move of the opponent."""
    moves = game.SOLUTION.best_actions(board) if perfect else game.legal_actions(board)
    return moves[rng.integers(len(moves))]


@cache
def prompt_of(tokenizer: PreTrainedTokenizerBase, board: str) -> Ids:
    """Tokens of the prompt for a board."""
    return tuple(render_chat(tokenizer, [Message(role="user", content=game.observation(board, 0))]))


@cache
def reply_of(tokenizer: PreTrainedTokenizerBase, action: str) -> Ids:
    """Tokens of a reply."""
    return (*tokenizer.encode(action), tokenizer.eos_token_id)


@torch.inference_mode()
def sampled(
    model: nn.Module, prompts: Sequence[Ids], limit: int, end: int
) -> list[tuple[Ids, list[float]]]:
    """A reply to each prompt with its log-probs; each different text is read once per token."""
    replies: list[tuple[list[int], list[float]]] = [([], []) for _ in prompts]
    running = list(range(len(prompts)))
    for _ in range(limit):
        texts = [(*prompts[i], *replies[i][0]) for i in running]
        of_text = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        width = max(map(len, of_text))
        ids = torch.tensor([[*text, *[0] * (width - len(text))] for text in of_text])
        hidden = model.get_decoder()(input_ids=ids, use_cache=False)[0]
        last = torch.tensor([len(text) - 1 for text in of_text])
        logits = model.get_output_embeddings()(hidden[torch.arange(len(last)), last])
        logprobs = logits.log_softmax(-1)[[of_text[text] for text in texts]]
        drawn = torch.multinomial(logprobs.exp(), 1)
        for i, token, logprob in zip(
            running, drawn[:, 0].tolist(), logprobs.gather(1, drawn)[:, 0].tolist(), strict=True
        ):
            replies[i][0].append(token)
            replies[i][1].append(logprob)
        running = [i for i in running if replies[i][0][-1] != end]
        if not running:
            break
    return [(tuple(ids), logprobs) for ids, logprobs in replies]


def main() -> None:
    """Print the seconds of each part, and keep them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--demonstrations", type=int, default=budget(400, 128))
    parser.add_argument("--imitate", type=int, default=budget(20, 8))
    parser.add_argument("--batches", type=int, default=budget(2, 1))
    args = parser.parse_args()
    torch.set_num_threads(1)
    defaults = TIC_TAC_TOE.defaults
    config = replace(
        defaults,
        demonstrations=args.demonstrations,
        sft_updates=args.imitate,
        updates=args.batches * defaults.minibatches,
    ).resolved()
    learner, stages, spent = asyncio.run(ours(config))
    hand = by_hand(learner, stages, config)
    print(f"{'CPU-seconds':16}{'ours':>8}{'by hand':>10}{'ratio':>8}")
    for part in PARTS:
        print(f"{part:16}{spent[part]:8.2f}{hand[part]:10.2f}{spent[part] / hand[part]:8.2f}")
    total, other = spent.total(), hand.total()
    print(f"{'all':16}{total:8.2f}{other:10.2f}{total / other:8.2f}")
    save("train_loop", {"parts": PARTS, "ours": dict(spent), "by_hand": dict(hand), "goal": GOAL})


if __name__ == "__main__":
    main()
