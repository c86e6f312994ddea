"""A training run from its config to its report.

    demonstrations -> supervised fine-tuning -> reinforcement learning -> evaluation -> report

From nothing, a tiny model first imitates a demonstrator and so learns the form of an answer; then
it learns from rewards. A model that is given starts with rewards.

Before a first update, all that can be wrong with the settings is an error: their combination, the
folder, the model, and the number of demonstrations, in the order of their cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ludic_gym.errors import ConfigError
from ludic_gym.policies.base import run_blocking
from ludic_gym.policies.reference import OraclePolicy, RandomPolicy
from ludic_gym.types import MakePolicy, Rollout
from ludic_train.algorithms.presets import RLAlgorithm, grpo, sft
from ludic_train.inference.policy_spec import PolicySpec, new_context
from ludic_train.loggers.console import ConsoleLogger
from ludic_train.loggers.loggers import JSONLLogger, MultiLogger
from ludic_train.models.chat_template import with_token_ids
from ludic_train.rows import rows_from
from ludic_train.runs.config import Demonstrations, EvalTasks, Recipe, RunConfig
from ludic_train.runs.folder import METRICS, forget_queue, kept, open_run
from ludic_train.runs.learner import Learner, learner_from_model, learner_from_nothing
from ludic_train.runs.remote import publish_every, remote_ends
from ludic_train.runs.report import report
from ludic_train.runs.run import Run, Stage, carry_out
from ludic_train.runs.tasks import (
    CONCURRENCY,
    demonstration_tasks,
    evaluate,
    evaluation_tasks,
    play,
    training_tasks,
)
from ludic_train.runs.watch import WatchedSource
from ludic_train.sources.base import BatchSource
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.sources.rollouts import RolloutBatchSource
from ludic_train.trainer.config import TrainerConfig
from ludic_train.trainer.trainer import Trainer

# Turns of one supervised update.
SFT_ROWS = 128
# Adam's second moments are those of very few gradients at first, and its steps too large.
WARMUP = 20
DEMONSTRATORS: Mapping[str, MakePolicy] = {"oracle": OraclePolicy, "random": RandomPolicy}


def train(
    env: str,
    *,
    model: str | None = None,
    algo: RLAlgorithm | None = None,
    out: str | Path,
    env_kwargs: Mapping[str, Any] | None = None,
    eval_kwargs: Mapping[str, Any] | None = None,
    demonstrator: Literal["oracle", "random"] | None = None,
    reply: str = "{}",
    max_tokens: int = 256,
    resume: bool = False,
    queue: str | None = None,
    servers: Sequence[str] = (),
    **settings: Any,  # noqa: ANN401 - fields of RunConfig
) -> Mapping[str, float]:
    """Train a policy for an environment, report in the folder `out`; the final evaluation.

        lt.train("ludic/GSM8K-v0", model="Qwen/Qwen2.5-0.5B-Instruct", out="runs/gsm8k")

    env: a registered id. env_kwargs, eval_kwargs: arguments of the environment that is learned
        from, and of the one that is measured; the same where the second is left out.
    model: a hub id, a folder or a run; without one, a tiny model is made from the texts of the
        demonstrations.
    algo: `grpo()` if left out.
    demonstrator: "oracle" or "random", for a model from nothing; `reply` is the text of an action,
        "{}" in the place of it. 2,000 demonstrations and 200 supervised updates if left out.
    max_tokens: of a completion.
    out: folder of the run: settings, numbers, checkpoints, model and report.
    settings: fields of `RunConfig`, such as updates=200, lora_rank=16, lr=1e-4, groups=32.
    resume, queue, servers: as in `train_recipe`.
    The result has the keys of an evaluation, such as "test/success" and "test/reward".
    Works in a notebook too, inside a running event loop; there, Ctrl-C ends the run at once, and
    `resume` continues from its last checkpoint. Raises ConfigError for unknown settings, and as
    `train_recipe` does.
    """
    # From the class, so that a misspelt setting is an error before anything is loaded.
    known = RunConfig.__dataclass_fields__.keys()
    if unknown := sorted(settings.keys() - known):
        raise ConfigError(f"train() has no setting {unknown[0]!r}; it has {', '.join(known)}")
    # Named settings win; without any, a tiny model needs a start that rewards can build on.
    warm = {"demonstrations": 2_000, "sft_updates": 200} if demonstrator else {}
    config = RunConfig(out=Path(out), model=model, **{**warm, **settings})
    kwargs = dict(env_kwargs or {})
    demonstrations = None
    if demonstrator is not None:
        demonstrations = Demonstrations(policy=demonstrator, kwargs=kwargs, reply=reply)
    recipe = Recipe(
        name=env,
        summary=f"a policy for {env}",
        defaults=config,
        env_id=env,
        kwargs=kwargs,
        evals={"test": EvalTasks(kwargs=kwargs if eval_kwargs is None else dict(eval_kwargs))},
        demonstrations=demonstrations,
        max_tokens=max_tokens,
        curves=("reward", "eval/test/success", "entropy"),
        try_it=f"bench {env} --policy {{out}}",
    )
    # A notebook has a running loop, in which asyncio.run would raise.
    running = train_recipe(recipe, config, algo=algo, resume=resume, queue=queue, servers=servers)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(running)
    return run_blocking(running)


async def train_recipe(
    recipe: Recipe,
    config: RunConfig,
    *,
    algo: RLAlgorithm | None = None,
    resume: bool = False,
    queue: str | None = None,
    servers: Sequence[str] = (),
) -> Mapping[str, float]:
    """Train with the settings of `config`, and report in its folder; the final evaluation.

        config = replace(TIC_TAC_TOE.defaults, out=Path("runs/first"), updates=300)
        results = await train_recipe(TIC_TAC_TOE, config)    # {"perfect/draw": 0.97, ...}

    algo: of learning from rewards; GRPO if left out.
    queue: URL of a queue; its actors play then (`ludic actor`) instead of this process.
    servers: addresses of inference servers (`ludic serve`): without a queue, of `config.model`;
        with one, of the params that the run publishes. They play no part in what is learned, so a
        resumed run may have others.
    Raises Interrupted after an orderly Ctrl-C; `resume` continues from there, with the same config.
    Raises ConfigError for settings that do not fit each other or the folder, EmptyBatch where the
    rewards of each task are all equal from the beginning, EpisodeError where most episodes fail.
    """
    _refuse_combination(recipe, config, queue, servers)
    open_run(recipe, config, resume=resume)
    # After the folder was accepted, and before actors can find the address of the run before.
    if not resume:
        forget_queue(config.out)
    learner, demonstrations = await _learner(recipe, config, () if queue else servers)
    stages = [sft_stage(recipe, config, learner, demonstrations)] if demonstrations else []
    algorithm = algo or grpo(entropy=config.entropy, max_lag=config.max_lag)
    stages.append(rl_stage(recipe, config, algorithm, learner, queue, servers))
    async with aclosing(learner):
        updates = sum(stage.updates for stage in stages)
        console = ConsoleLogger(updates, title=config.out.name, every=100)
        with closing(MultiLogger(JSONLLogger(config.out / METRICS), console)) as logger:
            run = Run(
                out=config.out,
                learner=learner,
                stages=tuple(stages),
                evaluate=lambda update: evaluate(
                    recipe, learner.make_policy, config.eval_episodes, kept(config.out, update)
                ),
                eval_every=config.eval_every,
                logger=logger,
            )
            try:
                await carry_out(run, resume=resume)
            # Also after an error: the thread of a queue's reader would keep its connections.
            finally:
                source = stages[-1].trainer.batch_source
                if isinstance(source, WatchedSource):
                    await source.aclose()
        # More episodes than on the way, since this is the number that is reported.
        results = await evaluate(recipe, learner.make_policy, config.final_episodes)
        # Two of each set, to read: numbers alone do not tell a habit from a skill.
        samples = [task for tasks in evaluation_tasks(recipe, 2).values() for task in tasks]
        games = await play(samples, learner.make_policy)
    report(config.out, results=results, games=games, curves=recipe.curves)
    return results


async def _learner(
    recipe: Recipe, config: RunConfig, servers: Sequence[str]
) -> tuple[Learner, list[Rollout]]:
    """The learner, and the demonstrations that its model was made from."""
    if config.model is not None:
        learner = learner_from_model(
            config.model,
            max_tokens=recipe.max_tokens,
            lora_rank=config.lora_rank,
            seed=config.seed,
            servers=servers,
        )
        return learner, []
    assert recipe.demonstrations is not None
    demonstrator = DEMONSTRATORS[recipe.demonstrations.policy]
    rollouts = await play(
        demonstration_tasks(recipe, config.seed, config.demonstrations), demonstrator
    )
    spec = PolicySpec(context="latest", system_prompt="", max_tokens=recipe.max_tokens)
    reply = recipe.demonstrations.reply
    return learner_from_nothing(rollouts, spec, reply=reply, seed=config.seed), rollouts


def sft_stage(
    recipe: Recipe, config: RunConfig, learner: Learner, demonstrations: Sequence[Rollout]
) -> Stage:
    """Supervised updates on the demonstrations, with equal weight for every turn.

    demonstrations: rollouts of a policy without tokens, which get those of the recipe's `reply`.
    The learning rate falls to 0 over the stage.
    Raises ConfigError where they are too few for one update.
    """
    assert recipe.demonstrations is not None
    reply = recipe.demonstrations.reply
    written = [
        with_token_ids(rollout, learner.tokenizer, new_context(learner.spec), reply=reply)
        for rollout in demonstrations
    ]
    rows = rows_from(written, sft())
    if len(rows) < SFT_ROWS:
        raise ConfigError(
            f"{len(demonstrations)} demonstrations are {len(rows)} turns, and an update imitates "
            f"{SFT_ROWS}: play more demonstrations"
        )
    source = OfflineBatchSource(rows, batch_size=SFT_ROWS, seed=config.seed)
    cfg = TrainerConfig(
        lr=config.sft_lr, warmup_updates=WARMUP, decay_updates=config.sft_updates or None
    )
    trainer = Trainer(learner.model, sft(), source, learner.publisher, cfg)
    return Stage(name="supervised fine-tuning", trainer=trainer, updates=config.sft_updates)


def rl_stage(
    recipe: Recipe,
    config: RunConfig,
    algo: RLAlgorithm,
    learner: Learner,
    queue: str | None = None,
    servers: Sequence[str] = (),
) -> Stage:
    """Updates on episodes that the learner plays itself, or that come through a queue.

    algo: with a queue and without a `max_lag`, it gets the one that lets a batch be played while
        another is trained on: 2 * minibatches - 1 updates.
    queue: URL of a queue. servers: addresses of servers that sample, here for a queue's actors.
    Raises QueueError for a URL that names no queue.
    """
    if queue is not None and algo.max_lag is None:
        # One batch may be played while another is trained on.
        algo = replace(algo, max_lag=2 * config.minibatches - 1)
    cfg = TrainerConfig(
        lr=config.lr,
        warmup_updates=WARMUP,
        decay_updates=config.updates,
        minibatches=config.minibatches,
        publish_every=publish_every(config.minibatches, algo.max_lag) if servers else 1,
        seed=config.seed,
    )
    source: BatchSource
    if queue is not None:
        source, publisher = remote_ends(config, learner, queue, servers)
    else:
        publisher = learner.publisher
        # The tasks are a fresh iterator: a resumed source skips those that were taken.
        source = RolloutBatchSource(
            training_tasks(recipe, config.seed),
            learner.make_policy,
            groups_per_batch=config.groups,
            group_size=config.group_size,
            concurrency=CONCURRENCY,
        )
    trainer = Trainer(learner.model, algo, source, publisher, cfg)
    return Stage(name="reinforcement learning", trainer=trainer, updates=config.updates)


def _refuse_combination(
    recipe: Recipe, config: RunConfig, queue: str | None, servers: Sequence[str]
) -> None:
    """Raise ConfigError for settings that cannot be meant together."""
    if config.model is None and (recipe.demonstrations is None or not config.demonstrations):
        raise ConfigError(
            f"{recipe.name} has no demonstrations to make a tiny model from: name a `model`, or a "
            "demonstrator"
        )
    if servers and queue is None and config.model is None:
        raise ConfigError(
            f"servers={list(servers)} serve a model that exists: name the same one as `model`, "
            "or give a queue, through which actors and servers follow a new model too"
        )
    for url in servers:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"servers={url!r} is no address: it begins with http:// or https://")
    if config.max_lag is not None and queue is None:
        raise ConfigError(
            f"max_lag={config.max_lag} is for runs with a queue; without one, nothing lags"
        )
