"""A recipe: what is played, imitated and measured; and the one way through all of it.

    demonstrations -> imitation -> games of one's own (GRPO) -> evaluation -> report

From nothing, a tiny model first imitates a demonstrator and so learns the form of an answer; then
it learns from rewards. A model that is given starts with its own games.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing

from ludic_gym.errors import ConfigError
from ludic_gym.types import Rollout
from ludic_train.algorithms.presets import RLAlgorithm, make_grpo, make_sft
from ludic_train.inference.saved import PolicySpec, new_context
from ludic_train.models.chat_template import with_token_ids
from ludic_train.publishers.base import PolicyPublisher
from ludic_train.rows import items_from
from ludic_train.runs.config import Recipe, RecipeConfig
from ludic_train.runs.evaluation import CONCURRENCY, evaluate, play
from ludic_train.runs.folder import kept, open_run
from ludic_train.runs.learner import Learner, learner_from_model, learner_from_nothing
from ludic_train.runs.remote import forget_queue, lag_of, remote_games, sync_every
from ludic_train.runs.report import show
from ludic_train.runs.run import Run, Stage, carry_out, open_loggers
from ludic_train.runs.watch import WatchedSource
from ludic_train.sources.base import BatchSource
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.sources.rollouts import RolloutBatchSource
from ludic_train.trainer.trainer import Trainer, TrainerConfig

IMITATION_ROWS = 128


async def train(
    recipe: Recipe,
    config: RecipeConfig,
    *,
    resume: bool = False,
    queue: str | None = None,
    samplers: Sequence[str] = (),
) -> Mapping[str, float]:
    """Train as `config` says, report in its folder, return the final measurements.

    queue: URL of a queue; its actors play then (`ludic actor`) instead of the learner itself.
    samplers: addresses of servers (`ludic serve`) that sample: without a queue, of `config.model`;
        with one, of what the run publishes. They play no part in what is learned, so a resumed run
        may have others.
    Raises Interrupted after an orderly Ctrl-C; `resume` goes on from there, with the same config.
    """
    _refuse_combination(config, queue, samplers)
    open_run(recipe, config, resume=resume)
    if not resume:
        forget_queue(config.out)
    if config.model is None:
        shown = await play(
            recipe.demonstrations(config.seed, config.demonstrations), recipe.demonstrator
        )
        spec = PolicySpec(context="latest", system_prompt="", max_tokens=recipe.max_tokens)
        learner = learner_from_nothing(shown, spec, reply=recipe.reply, seed=config.seed)
        stages = [imitation(recipe, config, learner, shown)]
    else:
        learner = learner_from_model(
            config.model,
            max_tokens=recipe.max_tokens,
            lora_rank=config.lora_rank,
            seed=config.seed,
            # Of a run with a queue, the trainer still measures in its own process.
            sampler=None if queue else samplers or None,
        )
        stages = []
    stages.append(own_games(recipe, config, learner, queue, samplers))
    async with aclosing(learner):
        with open_loggers(config.out, sum(stage.updates for stage in stages)) as logger:
            run = Run(
                out=config.out,
                learner=learner,
                stages=tuple(stages),
                evaluate=lambda update: evaluate(
                    recipe, learner, config.eval_episodes, keep=kept(config.out, update)
                ),
                eval_every=config.eval_every,
                logger=logger,
            )
            try:
                await carry_out(run, resume=resume)
            finally:
                await _close(stages[-1].trainer.batch_source)
        results = await evaluate(recipe, learner, recipe.final_episodes)
        samples = [task for tasks in recipe.measures(2).values() for task in tasks]
        games = await play(samples, learner.make_policy)
    show(config.out, results=results, games=games, curves=recipe.curves)
    return results


def _refuse_combination(config: RecipeConfig, queue: str | None, samplers: Sequence[str]) -> None:
    if samplers and queue is None and config.model is None:
        raise ConfigError(
            f"sampler={list(samplers)} serves a model that exists: name the same one as `model`, "
            "or give a queue, through which actors and servers follow a new model too"
        )
    for url in samplers:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"sampler={url!r} is no address: it begins with http:// or https://")
    if config.max_lag is not None and queue is None:
        raise ConfigError(
            f"max_lag={config.max_lag} is for runs with a queue; without one, nothing lags"
        )


def imitation(
    recipe: Recipe, config: RecipeConfig, learner: Learner, shown: Sequence[Rollout]
) -> Stage:
    """Supervised updates on the demonstrations, every turn alike."""
    algo = make_sft()
    written = [
        with_token_ids(rollout, learner.tokenizer, new_context(learner.spec), reply=recipe.reply)
        for rollout in shown
    ]
    items = items_from(written, algo.credit_assigner(written))
    if len(items) < IMITATION_ROWS:
        raise ConfigError(
            f"{config.demonstrations} demonstrations are {len(items)} turns, and an update "
            f"imitates {IMITATION_ROWS}: ask for more demonstrations"
        )
    source = OfflineBatchSource(items, batch_size=IMITATION_ROWS, seed=config.seed)
    cfg = TrainerConfig(
        lr=config.imitation_lr, warmup_updates=20, decay_updates=config.imitation_updates
    )
    trainer = Trainer(learner.model, algo, source, learner.publisher, cfg)
    return Stage(name="imitation", trainer=trainer, updates=config.imitation_updates)


def own_games(
    recipe: Recipe,
    config: RecipeConfig,
    learner: Learner,
    queue: str | None = None,
    samplers: Sequence[str] = (),
) -> Stage:
    """GRPO updates on episodes that the learner plays itself, or that come through a queue."""
    algo = own_algorithm(config.entropy)
    max_lag = config.max_lag
    if queue is not None and max_lag is None:
        max_lag = lag_of(config.minibatches)
    cfg = TrainerConfig(
        lr=config.lr,
        warmup_updates=20,
        decay_updates=config.updates,
        minibatches=config.minibatches,
        sync_every_steps=sync_every(config.minibatches, max_lag) if samplers else 1,
        max_lag=max_lag,
        seed=config.seed,
    )
    source, publisher = _ends(recipe, config, learner, algo, cfg, queue, samplers)
    trainer = Trainer(learner.model, algo, source, publisher, cfg)
    return Stage(name="own games", trainer=trainer, updates=config.updates)


def own_algorithm(entropy: float) -> RLAlgorithm:
    """What a recipe learns its own games by, actors included."""
    return make_grpo(entropy=entropy)


def _ends(
    recipe: Recipe,
    config: RecipeConfig,
    learner: Learner,
    algo: RLAlgorithm,
    cfg: TrainerConfig,
    queue: str | None,
    samplers: Sequence[str],
) -> tuple[BatchSource, PolicyPublisher]:
    """Where batches come from, and where params go."""
    if queue is not None:
        return remote_games(
            config.out, learner, queue, groups=config.groups, cfg=cfg, samplers=samplers
        )
    source = RolloutBatchSource(
        recipe.tasks(config.seed),
        learner.make_policy,
        algo,
        groups_per_batch=config.groups,
        group_size=config.group_size,
        concurrency=CONCURRENCY,
    )
    return source, learner.publisher


async def _close(source: BatchSource) -> None:
    if isinstance(source, WatchedSource):
        await source.aclose()
