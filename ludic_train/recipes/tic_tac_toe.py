"""Tic-Tac-Toe from nothing: imitate random legal moves, then learn from the outcome of games.

A randomly initialised model of 0.1M parameters first copies games of random legal moves, in which
nobody plays well, and so learns what a move is. Then GRPO (Shao et al. 2024, arXiv:2402.03300)
makes it play: each game is against a rival that is random or perfect, half of them each, because
whoever only meets a random rival never learns to defend.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from ludic_gym.policies import RandomPolicy
from ludic_gym.types import Rollout, Sampling, Task
from ludic_train.algorithms import make_grpo
from ludic_train.recipes.folder import open_run
from ludic_train.recipes.imitation import imitation
from ludic_train.recipes.learner import Learner, learner_from_model, learner_from_nothing
from ludic_train.recipes.parts import outcome_shares, play
from ludic_train.recipes.report import show
from ludic_train.recipes.run import Run, Stage, carry_out, open_loggers
from ludic_train.sources import RolloutBatchSource
from ludic_train.trainer import Trainer, TrainerConfig

ENV_ID = "ludic/TicTacToe-v0"
SAMPLING = Sampling(max_tokens=8)
RIVALS = ("perfect", "random")
FINAL_GAMES = 1_000
CURVES = ("reward", "eval/perfect/draw", "eval/random/win", "entropy")
# What is measured on is never trained on: seeds of a run stay far below these.
EVAL_SEEDS, DEMONSTRATION_SEEDS = 1_000_000_000, 2_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TicTacToeConfig:
    """Train a Tic-Tac-Toe policy that moves first, from nothing or from a model you have.

    out: folder of the run.
    model: folder or hub id of a chat model to train with LoRA; by default a tiny one is made.
    demonstrations: games of random legal moves to imitate first; without effect with `model`.
    imitation_updates, imitation_lr: updates on these, 256 moves each.
    updates, lr: updates on the policy's own games.
    groups: starts per batch, each played `group_size` times.
    minibatches: updates made from one batch.
    entropy: coefficient of the entropy bonus.
    eval_every: updates between two evaluations, each of `eval_games` games per rival.
    """

    out: Path = Path("runs/tic-tac-toe")
    seed: int = 0
    model: str | None = None
    lora_rank: int = 16
    demonstrations: int = 4_000
    imitation_updates: int = 300
    imitation_lr: float = 3e-3
    updates: int = 1_200
    lr: float = 1e-3
    groups: int = 32
    group_size: int = 8
    minibatches: int = 4
    entropy: float = 0.01
    eval_every: int = 200
    eval_games: int = 200


async def train(config: TicTacToeConfig, *, resume: bool = False) -> dict[str, float]:
    """Train as `config` says; how the policy plays 1,000 games against each rival.

    Raises Interrupted after an orderly Ctrl-C.
    """
    config = open_run(config, config.out, resume=resume)
    if config.model is None:
        games = await play(_demonstrations(config), RandomPolicy)
        learner = learner_from_nothing(games, seed=config.seed)
        stages = [_imitation(learner, games, config), _reinforcement(learner, config)]
    else:
        learner = learner_from_model(config.model, lora_rank=config.lora_rank, seed=config.seed)
        stages = [_reinforcement(learner, config)]
    with open_loggers(config.out, sum(stage.updates for stage in stages)) as logger:
        run = Run(
            out=config.out,
            learner=learner,
            stages=tuple(stages),
            evaluate=lambda games: evaluate(learner, games),
            eval_every=config.eval_every,
            eval_episodes=config.eval_games,
            logger=logger,
        )
        await carry_out(run, resume=resume)
    results = await evaluate(learner, FINAL_GAMES)
    shown = await play(_eval_games("perfect", 2) + _eval_games("random", 2), learner.make_policy)
    show(config.out, results=results, games=shown, curves=CURVES)
    return results


def _imitation(learner: Learner, games: list[Rollout], config: TicTacToeConfig) -> Stage:
    return imitation(
        learner,
        games,
        updates=config.imitation_updates,
        lr=config.imitation_lr,
        batch_size=256,
        seed=config.seed,
    )


def _reinforcement(learner: Learner, config: TicTacToeConfig) -> Stage:
    algo = make_grpo(entropy=config.entropy)
    source = RolloutBatchSource(
        _games(config),
        learner.make_policy,
        algo,
        groups_per_batch=config.groups,
        group_size=config.group_size,
    )
    cfg = TrainerConfig(
        lr=config.lr,
        warmup_updates=20,
        decay_updates=config.updates,
        minibatches=config.minibatches,
        seed=config.seed,
    )
    trainer = Trainer(learner.model, algo, source, learner.publisher, cfg)
    return Stage(name="reinforcement", trainer=trainer, updates=config.updates)


def _games(config: TicTacToeConfig) -> Iterator[Task]:
    # A draw with a perfect rival has to beat a loss, or there is nothing to learn from it.
    for i in count():
        yield Task(
            env_id=ENV_ID,
            kwargs={"opponent": "mixed", "draw_reward": 0.5},
            seed=config.seed * 1_000_000 + i,
            sampling=SAMPLING,
        )


def _demonstrations(config: TicTacToeConfig) -> Iterator[Task]:
    for i in range(config.demonstrations):
        seed = DEMONSTRATION_SEEDS + config.seed * 1_000_000 + i
        yield Task(env_id=ENV_ID, seed=seed, sampling=Sampling(seed=seed))


async def evaluate(learner: Learner, games: int) -> dict[str, float]:
    """The share of wins, draws, losses and illegal moves against each rival, sampled."""
    shares = {}
    for rival in RIVALS:
        found = await outcome_shares(_eval_games(rival, games), learner.make_policy)
        for outcome in ("win", "draw", "loss", "illegal"):
            shares[f"{rival}/{outcome}"] = found.get(outcome, 0.0)
    return shares


def _eval_games(rival: str, count: int) -> list[Task]:
    return [
        Task(
            env_id=ENV_ID,
            kwargs={"opponent": rival},
            seed=EVAL_SEEDS + i,
            sampling=replace(SAMPLING, seed=EVAL_SEEDS + i),
        )
        for i in range(count)
    ]
