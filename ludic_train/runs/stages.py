"""The learner of a run, and its stages: imitation, then learning from rewards."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import gymnasium as gym
import torch

from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.errors import ConfigError
from ludic_gym.harness import Harness
from ludic_gym.making import make_env
from ludic_gym.policies.reference import OraclePolicy, RandomPolicy
from ludic_gym.recorder import ROLLOUTS, Recorder, Weights
from ludic_gym.rollout.episodes import run_matches
from ludic_gym.sampling import leaves_out_tokens
from ludic_gym.types import Completion, Episode, Rollout, Task
from ludic_train.algorithms.presets import RLAlgorithm, sft
from ludic_train.algorithms.value_head import add_value_head
from ludic_train.distributed.fsdp import checkpoint_activations, sharded_modules
from ludic_train.distributed.ranks import call_on_rank_0, number_from_rank_0, rank, world_size
from ludic_train.models.attention import attention_for
from ludic_train.models.chat_template import set_chat_args, with_token_ids
from ludic_train.models.load import LoRA
from ludic_train.models.modules import is_adapted, unwrapped
from ludic_train.rows import rows_from
from ludic_train.runs.config import MAX_TOKENS, RunConfig
from ludic_train.runs.ends import Ends, queue_ends
from ludic_train.runs.evaluation import CONCURRENCY, play
from ludic_train.runs.learner import (
    Learner,
    OnRank0,
    learner_from_model,
    learner_from_nothing,
    sharded_learner,
)
from ludic_train.runs.machine import Machine
from ludic_train.runs.preflight import GROUPS, check_preflight, lines, preflight
from ludic_train.runs.recipe import Recipe
from ludic_train.runs.run import Stage
from ludic_train.runs.tasks import demonstration_tasks, levels_of, training_tasks
from ludic_train.sources.base import BatchSource
from ludic_train.sources.offline import MakeRows, OfflineBatchSource
from ludic_train.sources.publisher import InProcessPublisher, PolicyPublisher
from ludic_train.sources.rollouts import RolloutBatchSource, Score, playing
from ludic_train.trainer.config import Decay, Execution, TrainerConfig
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import REFERENCE, VALUES, SAWItem

# Far above the seeds that users choose.
LOOKS_FROM = 2**30
# Demonstrated rollouts of one supervised update.
SFT_ROLLOUTS = 128
# Tokens of a row, where neither the model nor a setting has a limit.
LONGEST = 2**31 - 1
DEMONSTRATORS: Mapping[str, Any] = {"oracle": OraclePolicy, "random": RandomPolicy}


async def make_learner(
    recipe: Recipe, config: RunConfig, machine: Machine, device: str = "cpu"
) -> tuple[Learner, list[Rollout]]:
    """The learner, whole and in this process, and the demonstrations that it is to imitate first.

    device: of its model; the CPU if `distribute_learner` is to shard it.
    Raises ConfigError for servers that return no sampling masks where training needs them.
    """
    demonstrations = await _demonstrations(recipe, config)
    masks = leaves_out_tokens(config.sample.sampling)
    tune, sample = config.tune, config.sample
    if config.model is not None:
        learner = learner_from_model(
            config.model,
            max_tokens=sample.max_tokens or MAX_TOKENS,
            lora_rank=tune.lora_rank,
            lora=LoRA(rank=tune.lora_rank, **tune.adapter_settings) if tune.lora_rank else None,
            seed=config.seed,
            harness=config.harness,
            servers=() if machine.queue else machine.servers,
            limits=machine.limits,
            chat_args=sample.chat_args,
            sampling_masks=masks,
            exact=machine.exact,
            device=device,
            router_replay=tune.router_replay,
            # A base that stays as it is needs no more bits than it is computed with.
            dtype=torch.bfloat16 if tune.dtype == "bf16" and tune.lora_rank else torch.float32,
        )
        if masks and isinstance(learner.client, VLLMTokenClient):
            await learner.client.require_sampling_masks()
        return learner, demonstrations
    assert recipe.demonstrator is not None
    # Short prompts: what is imitated from nothing has the whole state in each observation.
    usual = Harness(context="latest", system_prompt="", reply_tokens=sample.max_tokens)
    reply = recipe.demonstrator.reply
    learner = learner_from_nothing(
        demonstrations,
        config.harness.over(usual),
        reply=reply,
        seed=config.seed,
        device=device,
        exact=machine.exact,
    )
    # The template of a tiny model has none, and the error says so.
    set_chat_args(learner.tokenizer, sample.chat_args)
    return learner, demonstrations


def distribute_learner(
    whole: Learner | None, config: RunConfig, algo: RLAlgorithm, device: str, machine: Machine
) -> Learner:
    """The learner over all ranks of torch.distributed, which all call this; as it is without.

    whole: of `make_learner`, on rank 0; None on the others.
    Raises ConfigError for replicas that do not divide the ranks.
    """
    ranks = world_size()
    if ranks % machine.context_parallel:
        raise ConfigError(
            f"context_parallel={machine.context_parallel} and {ranks} ranks: so many must divide "
            "them; take --gpus"
        )
    if not torch.distributed.is_initialized():
        assert whole is not None
        if machine.recompute:
            checkpoint_activations(whole.model)
        if machine.replicas != 1:
            raise ConfigError(f"replicas={machine.replicas} in one process: take --gpus")
        return whole
    param_dtype = torch.bfloat16 if config.tune.dtype == "bf16" else None
    return sharded_learner(
        whole,
        algo,
        device=device,
        param_dtype=param_dtype,
        offload=machine.offload,
        recompute=machine.recompute,
        replicas=machine.replicas,
        router_replay=config.tune.router_replay,
        seed=config.seed,
    )


async def _demonstrations(recipe: Recipe, config: RunConfig) -> list[Rollout]:
    if not config.learn.demonstrations or recipe.demonstrator is None:
        return []
    player = DEMONSTRATORS[recipe.demonstrator.policy]
    tasks = demonstration_tasks(recipe, config, config.learn.demonstrations)
    if not recipe.self_play:
        return await play(tasks, player)
    games = [game async for game in run_matches(tasks, player, concurrency=CONCURRENCY)]
    # Matches end in any order, and equal seeds must imitate equal rows in equal order.
    games.sort(key=lambda game: game.index)
    return [rollout for game in games for rollout in game.rollouts]


def imitation_stage(
    recipe: Recipe,
    config: RunConfig,
    learner: Learner,
    demonstrations: Sequence[Rollout],
    machine: Machine | None = None,
) -> Stage:
    """Supervised updates on the demonstrations, with equal weight for every token.

    demonstrations: rollouts of a policy without tokens, which get those of the recipe's `reply`.
    One pass over the demonstrations where the config names no number of updates. The learning rate
    falls to a tenth over the stage.
    Under torch.distributed, rank 0 has the demonstrations.
    Raises ConfigError where they are too few for one update.
    """
    # Those without a step, such as of an agent that never moves, teach nothing.
    imitated = [rollout for rollout in demonstrations if rollout.steps]

    def num_updates() -> int:
        if len(imitated) < SFT_ROLLOUTS:
            raise ConfigError(
                f"demonstrations={len(demonstrations)} gave {len(imitated)} rollouts, and an "
                f"update imitates {SFT_ROLLOUTS}: play more demonstrations"
            )
        return config.learn.sft_updates or -(-len(imitated) // SFT_ROLLOUTS)

    updates = number_from_rank_0(num_updates)
    source: BatchSource = OnRank0()
    if rank() == 0:
        functions = _typed_rows(recipe, learner, imitated)
        source = OfflineBatchSource(functions, batch_size=SFT_ROLLOUTS, seed=config.seed)
    # Of servers, which are up to date at each evaluation and at the end: both are multiples of it.
    is_local = isinstance(learner.publisher, InProcessPublisher)
    pushes = 1 if is_local else math.gcd(config.evaluate.eval_every, updates)
    cfg = TrainerConfig(
        device=learner.device,
        lr=config.learn.sft_lr,
        warmup_updates=_warmup(config, updates),
        decay_updates=updates,
        publish_every=pushes,
        micro_token_budget=machine.micro_tokens if machine else None,
        max_seq_len=_longest_row(learner, machine),
        execution=_execution(machine, config, learner),
    )
    trainer = Trainer(learner.model, sft(), source, learner.publisher, cfg)
    return Stage(name="supervised fine-tuning", trainer=trainer, updates=updates, imitates=True)


def _typed_rows(
    recipe: Recipe, learner: Learner, demonstrations: Sequence[Rollout]
) -> list[MakeRows]:
    """Functions that make the rows of each demonstration, as if the learner had typed it.

    Not the rows: those of thousands take half a second, before the first update.
    """
    assert recipe.demonstrator is not None
    reply = recipe.demonstrator.reply
    written: dict[bytes, Completion] = {}

    def rows_of(rollout: Rollout, system_prompt: str) -> list[SAWItem]:
        typed = with_token_ids(
            rollout,
            learner.tokenizer,
            learner.harness.new_context(),
            system_prompt=system_prompt,
            reply=reply,
            known=written,
        )
        return rows_from([typed], sft())

    prompts = _system_prompts(demonstrations, learner.harness)
    return [partial(rows_of, *pair) for pair in zip(demonstrations, prompts, strict=True)]


def reward_stage(
    recipe: Recipe,
    config: RunConfig,
    learner: Learner,
    machine: Machine,
    *,
    algo: RLAlgorithm,
    score: Score | None = None,
    look: bool = False,
    recorder: Recorder | None = None,
    before: int = 0,
) -> Stage:
    """Updates on episodes that the learner plays itself, or that come through a queue.

    config, algo: as `settled` returns them.
    score: gives rollouts their rewards, in place of the environment.
    look: play some episodes before the first update, print what they tell, and raise CannotLearn
        where no reply is of use.
    recorder: keeps the episodes. before: number of updates made by the stages before this one.
    Raises QueueError for a URL that names no queue.
    """
    queue = machine.queue
    # That of a sharded model is there already, as its reference is.
    if VALUES in algo.attach and not sharded_modules(learner.model):
        add_value_head(learner.model)
    assert config.learn.lr is not None
    # Batches are trained on whole, so that the last one may go beyond the config's number.
    updates = -(-config.learn.updates // config.learn.minibatches) * config.learn.minibatches
    pushes = 1 if machine.samples_here else publish_every(config.learn.minibatches, algo.max_lag)
    cfg = TrainerConfig(
        device=learner.device,
        router_replay=config.tune.router_replay,
        lr=config.learn.lr,
        warmup_updates=_warmup(config, updates),
        decay_updates=updates,
        # To nothing: what the last updates spoil is not mended by others.
        decay=Decay(to=0.0),
        minibatches=config.learn.minibatches,
        publish_every=pushes,
        # What sampling is limited by: nothing that was sampled is left out for its length.
        micro_token_budget=machine.micro_tokens,
        max_seq_len=min(config.sample.max_length or LONGEST, _longest_row(learner, machine)),
        execution=_execution(machine, config, learner),
        seed=config.seed,
    )
    opened: list[tuple[BatchSource, PolicyPublisher, Ends]] = [(OnRank0(), OnRank0(), Ends())]
    levels = levels_of(recipe)

    writer = recorder or Recorder(config.out / ROLLOUTS, share=0.0)

    def record(episodes: Sequence[Episode], credit: Mapping[str, Weights] | None) -> None:
        writer.write(episodes, use="train", update=before + trainer.version + 1, credit=credit)

    def record_credit(credit: Mapping[str, Weights]) -> None:
        writer.write_credit(before + trainer.version + 1, credit)

    def open_ends() -> None:
        if queue is not None:
            opened.append(queue_ends(config, learner, machine, levels, record_credit))
            return
        # The tasks are a fresh iterator: a resumed source skips those that were taken.
        source = RolloutBatchSource(
            training_tasks(recipe, config, config.seed, levels.current if levels else None),
            playing(learner.make_policy, score, self_play=recipe.self_play),
            groups_per_batch=config.learn.groups,
            group_size=config.learn.group_size,
            concurrency=CONCURRENCY,
            levels=levels,
            record=record,
        )
        opened.append((source, learner.publisher, Ends()))

    call_on_rank_0(open_ends)
    source, publisher, ends = opened[-1]
    reference = learner.reference
    # For a KL term; with LoRA, the trainer keeps the adapter as it is now.
    if REFERENCE in algo.attach and reference is None and not is_adapted(learner.model):
        reference = copy.deepcopy(learner.model)
    trainer = Trainer(learner.model, algo, source, publisher, cfg, reference=reference)

    async def first_look() -> None:
        # Tasks that the run does not learn from, so that the look changes nothing.
        tasks = list(islice(training_tasks(recipe, config, config.seed + LOOKS_FROM), GROUPS))
        stats = await preflight(tasks, learner.make_policy, config.learn.group_size, score=score)
        # The limit of a tiny model comes from its demonstrations.
        limited = config.changed(max_tokens=learner.harness.reply_tokens)
        print("\n".join(lines(stats, limited)), flush=True)
        check_preflight(stats, limited)

    has_look = look and queue is None and not recipe.self_play
    return Stage(
        name="reinforcement learning",
        trainer=trainer,
        updates=updates,
        look=first_look if has_look else None,
        ends=ends,
    )


def publish_every(minibatches: int, max_lag: int | None) -> int:
    """Updates between two pushes to servers: a batch's, or as many as `max_lag` leaves room for.

    Nothing is sampled between the updates of a batch, unless through a queue; after skipped
    updates, a batch can begin as many updates after a push as there are between two.

        publish_every(4, None)    # 4: once per batch
        publish_every(4, 3)       # 1: the last update of a batch is 3 after its first
    """
    return minibatches if max_lag is None else min(minibatches, max_lag - minibatches + 2)


def _execution(machine: Machine | None, config: RunConfig, learner: Learner) -> Execution:
    if machine is None:
        return Execution()
    shares_rows = machine.context_parallel > 1
    return Execution(
        context_parallel=machine.context_parallel,
        # Rows that ranks share have an attention of their own.
        attention=None
        if shares_rows
        else attention_for(machine.attention, learner.device, config.tune.dtype),
    )


def _longest_row(learner: Learner, machine: Machine | None) -> int:
    """Tokens of the longest row that the model can read, and that a forward pass may have."""
    config = unwrapped(learner.model).config.get_text_config()
    positions: int | None = getattr(config, "max_position_embeddings", None)
    return min(positions or LONGEST, (machine and machine.micro_tokens) or LONGEST)


def _warmup(config: RunConfig, updates: int) -> int:
    return round(config.learn.warmup * updates)


def _system_prompts(rollouts: Sequence[Rollout], harness: Harness) -> list[str]:
    if harness.system_prompt is not None:
        return [harness.whole_prompt("")] * len(rollouts)
    # Rollouts hold no system prompt, so that it comes from their environments again.
    envs: dict[str, gym.Env[str, str]] = {}
    try:
        return [harness.whole_prompt(_suggested(rollout.task, envs)) for rollout in rollouts]
    finally:
        for env in envs.values():
            env.close()


def _suggested(task: Task, envs: dict[str, gym.Env[str, str]]) -> str:
    key = f"{task.env_id} {sorted(task.kwargs.items())}"
    if key not in envs:
        envs[key] = make_env(task.env_id, **task.kwargs)
    options = None if task.options is None else dict(task.options)
    return str(envs[key].reset(seed=task.seed, options=options)[1].get("system_prompt", ""))
