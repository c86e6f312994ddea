"""A recipe: what is played, imitated and measured; and the one way through all of it.

    demonstrations -> imitation -> games of one's own (GRPO) -> evaluation -> report

From nothing, a tiny model first imitates a demonstrator and so learns the form of an answer; then
it learns from rewards. A model that is given starts with its own games.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from ludic_gym.bench.runner import run_bench
from ludic_gym.errors import ConfigError, EpisodeError
from ludic_gym.rollout import run_episodes
from ludic_gym.types import Episode, MakePolicy, Rollout, Task
from ludic_train.algorithms import RLAlgorithm, make_grpo, make_sft
from ludic_train.inference.saved import PolicySpec, new_context
from ludic_train.publishers import PolicyPublisher
from ludic_train.recipes.folder import kept, open_run
from ludic_train.recipes.learner import Learner, learner_from_model, learner_from_nothing
from ludic_train.recipes.remote import forget_queue, lag_of, remote_games, sync_every
from ludic_train.recipes.report import show
from ludic_train.recipes.run import Run, Stage, carry_out, open_loggers
from ludic_train.recipes.samplers import WatchedSource
from ludic_train.rendering import with_token_ids
from ludic_train.saw import items_from
from ludic_train.sources import (
    BatchSource,
    OfflineBatchSource,
    RolloutBatchSource,
)
from ludic_train.trainer import Trainer, TrainerConfig

CONCURRENCY = 256
IMITATION_ROWS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeConfig:
    """How to train.

    Attributes:
        out: Folder of the run.
        seed: Of everything that is random: params, demonstrations, games, sampling.
        model: Run folder, model folder or hub id of a chat model to train by LoRA; use a lower
            `lr` then, such as 1e-4. Without it, a tiny model is made.
        lora_rank: Rank of the adapters of `model`; 0 trains all its params.
        demonstrations: Episodes to imitate first; none with `model`.
        imitation_updates: Updates on the demonstrations, 128 turns each.
        imitation_lr: Peak learning rate of these.
        updates: Updates on the policy's own episodes.
        lr: Peak learning rate of these.
        groups: Tasks in a batch.
        group_size: Episodes of each task; what they earn is compared with each other.
        minibatches: Updates made from one batch.
        max_lag: With a queue, how many updates old a group may be at the last one made from it;
            without it, one batch is played while another is trained on (2 * `minibatches` - 1).
        entropy: Coefficient of the entropy bonus.
        eval_every: Updates between two evaluations and checkpoints.
        eval_episodes: Episodes of an evaluation, per measure.
    """

    out: Path
    seed: int = 0
    model: str | None = None
    lora_rank: int = 16
    demonstrations: int
    imitation_updates: int
    imitation_lr: float = 3e-3
    updates: int
    lr: float
    groups: int = 32
    group_size: int = 8
    minibatches: int = 4
    max_lag: int | None = None
    entropy: float = 0.0
    eval_every: int = 100
    eval_episodes: int = 200

    def __post_init__(self) -> None:
        _check_at_least(
            0,
            seed=self.seed,
            imitation_updates=self.imitation_updates,
            lora_rank=self.lora_rank,
        )
        _check_at_least(
            1,
            demonstrations=self.demonstrations,
            updates=self.updates,
            groups=self.groups,
            minibatches=self.minibatches,
            eval_every=self.eval_every,
            eval_episodes=self.eval_episodes,
        )
        if self.max_lag is not None and self.max_lag < self.minibatches - 1:
            raise ConfigError(
                f"max_lag={self.max_lag}, but the last of minibatches={self.minibatches} updates "
                f"from a batch is {self.minibatches - 1} after the first: raise it to that or more"
            )
        # One episode alone has nothing to be compared with: it teaches nothing.
        _check_at_least(2, group_size=self.group_size)


def _check_at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise ConfigError(f"{name} must be at least {least}, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What tells one training from another.

    demonstrations: the first n tasks of a seed, for `demonstrator` to play; tasks: those of a
        seed, without end; measures: n tasks for each thing that is measured, by name, none of
        which is ever trained on.
    reply: what the model is taught to write for an action, such as "<answer>{}</answer>".
    max_tokens: of a completion.
    outcomes: which shares of the episodes of a measure are reported.
    final_episodes: per measure, when training has ended.
    curves: the metrics to draw.
    try_it: what to type after `ludic` to use the policy, with "{out}" for the run's folder.
    """

    name: str
    summary: str
    defaults: RecipeConfig
    demonstrations: Callable[[int, int], Iterable[Task]]
    demonstrator: MakePolicy
    reply: str = "{}"
    max_tokens: int
    tasks: Callable[[int], Iterator[Task]]
    measures: Callable[[int], Mapping[str, Sequence[Task]]]
    outcomes: Sequence[str]
    final_episodes: int = 1_000
    curves: Sequence[str]
    try_it: str


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


async def evaluate(
    recipe: Recipe, learner: Learner, episodes: int, keep: Callable[[Episode], None] | None = None
) -> dict[str, float]:
    """The share of each outcome in each measure, as "measure/outcome".

    keep: called with every episode. Raises EpisodeError if an episode fails.
    """
    shares = {}
    for name, tasks in recipe.measures(episodes).items():
        result = await run_bench(
            tasks, learner.make_policy, concurrency=CONCURRENCY, on_episode=keep
        )
        if result.errors:
            index, reason = result.errors[0]
            raise EpisodeError(f"{len(result.errors)} of {name} failed; task {index}: {reason}")
        for outcome in recipe.outcomes:
            shares[f"{name}/{outcome}"] = result.outcomes.get(outcome, 0) / result.episodes
    return shares


async def play(tasks: Iterable[Task], make_policy: MakePolicy) -> list[Rollout]:
    """A rollout per task, in the order of the tasks. Raises EpisodeError if one fails."""
    episodes = [e async for e in run_episodes(tasks, make_policy, concurrency=CONCURRENCY)]
    for episode in episodes:
        if episode.error is not None:
            raise EpisodeError(f"{episode.task.env_id}, task {episode.index}: {episode.error}")
    episodes.sort(key=lambda episode: episode.index)
    return [rollout for episode in episodes for rollout in episode.rollouts]
