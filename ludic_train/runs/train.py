"""A training run from its config to its report.

    demonstrations -> supervised fine-tuning -> reinforcement learning -> evaluation -> report

Before a first update, all that can be wrong with the settings is an error: their combination, the
folder, the model, and the number of demonstrations, in the order of their cost.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch.distributed as dist
from safetensors import SafetensorError

from ludic_gym.errors import ConfigError
from ludic_gym.harness import IN_PYTHON, Harness
from ludic_gym.policies.base import run_blocking
from ludic_gym.recorder import Recorder
from ludic_gym.types import Episode, Policy, Rollout
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.checkpoints.training_state import claim
from ludic_train.disk import running_in, writing
from ludic_train.distributed.device import (
    on_device,
    process_group,
    resolved_device,
    resolved_precision,
)
from ludic_train.distributed.ranks import call_on_rank_0, rank, run_on_rank_0
from ludic_train.runs.config import SETTINGS, RunConfig, check_names
from ludic_train.runs.config_file import MACHINE
from ludic_train.runs.ends import installed_vllm, served_learner, with_agent
from ludic_train.runs.evaluation import evaluate, play, report
from ludic_train.runs.folder import (
    forget_after_checkpoint,
    forget_queue,
    open_run,
    run_recorder,
)
from ludic_train.runs.learner import Learner
from ludic_train.runs.machine import Machine
from ludic_train.runs.recipe import (
    Recipe,
    TrainEnv,
    recipe_for,
    with_curriculum,
    with_demonstrator,
    with_model,
)
from ludic_train.runs.rewards import Reward, score_of
from ludic_train.runs.run import Floors, Run, Stage, run_logger, run_stages
from ludic_train.runs.settled import check_combination, settled
from ludic_train.runs.stages import distribute_learner, imitation_stage, make_learner, reward_stage
from ludic_train.runs.tasks import evaluation_tasks
from ludic_train.sources.base import BatchSource
from ludic_train.sources.levels import LevelSchedule

if TYPE_CHECKING:
    from ludic_train.runs.trained import TrainedRun


def train(
    env: str | Sequence[str | TrainEnv] | Recipe,
    *,
    model: str | None = None,
    algo: str | RLAlgorithm | None = None,
    reward: str | Reward | None = None,
    out: str | Path | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    eval_kwargs: Mapping[str, Any] | None = None,
    demonstrator: Literal["oracle", "random"] | None = None,
    harness: Harness | str | Callable[..., Policy] | None = None,
    self_play: bool = False,
    curriculum: bool | LevelSchedule = False,
    machine: Machine | None = None,
    resume: bool = False,
    preflight: bool = True,
    **settings: Any,  # noqa: ANN401 - fields of RunConfig and Machine
) -> TrainedRun:
    """Train a policy for an environment, and report in the folder `out`; the run.

        lt.train("ludic/GSM8K-v0", model="Qwen/Qwen2.5-0.5B-Instruct", out="runs/gsm8k")

    env: a registered id, several, a suite, or a recipe. "ID=2" has twice the tasks of others;
        "module:id" imports the module first. env_kwargs, eval_kwargs: arguments of the
        environments, and further ones for those that are measured.
    model: a hub id, a folder or a run; without one, a tiny model is made from the texts of the
        demonstrations.
    algo: name of a preset, or an algorithm such as `grpo(loss=my_loss)`; that of the
        recipe, or `grpo`, if left out.
    reward: your own, from a rollout; the environment's where it is left out.
    demonstrator: "oracle" or "random", the best that the environment has if left out.
    harness: how the model plays: a `Harness`, the name of one, such as "think-tag", "module:name",
        or a function of (client, env) that returns a policy. Its parts are settings too, such as
        context="latest". What it leaves out is as the model was trained.
    self_play: the model plays all agents of a PettingZoo environment.
    curriculum: True for the levels of the catalogue, or a schedule of your own; evaluations are of
        the hardest level, unless `eval_kwargs` names another.
    out: folder of the run: settings, numbers, checkpoints, model and report; runs/NAME if left out.
    machine: where to compute, such as Machine(device="cuda", log=("tensorboard",)).
    resume: continue the run in `out`.
    preflight: look at some episodes before learning from rewards, and refuse what cannot learn.
    settings: fields of `RunConfig` and `Machine`, such as updates=200, lora_rank=16, lr=1e-4,
        groups=32, device="cpu".
    The run has the numbers of its final evaluation by name, such as "test/success" and
    "test/reward", and `curves`, `model`, and `evaluate`; a notebook shows it.
    Works in a notebook too, inside a running event loop; there, Ctrl-C ends the run at once, and
    `resume` continues from its last checkpoint. Raises ConfigError for unknown settings, and as
    `train_recipe` does.
    """
    # First, so that a misspelt setting is an error before anything is loaded.
    computed = {name: settings.pop(name) for name in MACHINE if name in settings}
    check_names(settings, {**SETTINGS, **dict.fromkeys(MACHINE)}, "train()")
    if isinstance(computed.get("engine"), str):
        computed["engine"] = (computed["engine"],)
    if isinstance(env, Recipe):
        recipe = env if model is None else with_model(env, model)
    else:
        recipe = recipe_for(
            [env] if isinstance(env, str) else env,
            model=model,
            env_kwargs=env_kwargs,
            eval_kwargs=eval_kwargs,
            demonstrator=demonstrator,
            self_play=self_play,
        )
    if curriculum:
        recipe = with_curriculum(recipe, None if curriculum is True else curriculum)
    changes: dict[str, Any] = {}
    if algo is not None:
        # Options of the recipe's own algorithm are none of another one.
        changes = {"algo": algo if isinstance(algo, str) else IN_PYTHON, "algo_options": {}}
    changes |= {"harness": Harness.of(harness)} if harness is not None else {}
    changes |= {"model": model} if model is not None else {}
    changes |= {"out": Path(out)} if out is not None else {}
    changes |= {"reward": reward if isinstance(reward, str) else IN_PYTHON} if reward else {}
    config = recipe.defaults.changed(**{**changes, **settings})
    running = train_recipe(
        recipe,
        config,
        replace(machine or Machine(), **computed),
        algo=None if isinstance(algo, str) else algo,
        reward=None if isinstance(reward, str) else reward,
        resume=resume,
        preflight=preflight,
    )
    # A notebook has a running loop, in which asyncio.run would raise.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        ended = asyncio.run(running)
    else:
        ended = run_blocking(running)
    # Here, because only a run that has ended is looked at.
    from ludic_train.runs.trained import TrainedRun

    return TrainedRun(config.out, ended)


async def train_recipe(
    recipe: Recipe,
    config: RunConfig,
    machine: Machine | None = None,
    *,
    algo: RLAlgorithm | None = None,
    reward: Reward | None = None,
    resume: bool = False,
    preflight: bool = True,
) -> Mapping[str, float]:
    """Train with the settings of `config`, and report in its folder; the final evaluation.

        config = TIC_TAC_TOE.defaults.changed(out=Path("runs/first"), updates=300)
        results = await train_recipe(TIC_TAC_TOE, config)    # {"perfect_first/draw": 0.97, ...}

    machine: where to compute; a resumed run may have another.
    Under torchrun each rank calls this, and trains its shards of the model (FSDP2); all ranks see
    the same folder `out`. Only rank 0 has results, {} is those of the others.
    algo, reward: objects in place of those that `config` names.
    preflight: play some episodes before learning from rewards, and print what to expect of the run.
    Raises Interrupted after an orderly Ctrl-C; `resume` continues from there, with the same config.
    Raises ConfigError for settings that do not fit each other or the folder, EmptyBatch where the
    rewards of each task are all equal from the beginning, EpisodeError where most episodes fail,
    CannotLearn where the first look finds no reply that can be used, Collapsed below a floor,
    ServerError where a server of the run's own cannot be started, or ends again and again,
    DiskError, CheckpointError and PublishError where nothing more can be written.
    """
    machine = machine or Machine()
    if config.model is None or config.learn.demonstrations:
        recipe = with_demonstrator(recipe, config.harness)
    check_combination(recipe, config, machine, reward)
    algo, config = settled(algo, config, machine)
    chosen_reward = reward or config.reward
    vllm, recorder = installed_vllm(config, machine), run_recorder(config.out, machine)
    with (
        running_in(config.out, (SafetensorError,)),
        _on_device(machine, config) as (device, config),
    ):
        call_on_rank_0(lambda: _open_folder(recipe, config, machine, resume=resume))
        async with _opened(recipe, config, machine, algo, device, vllm) as opened:
            stages = list[Stage]()
            if config.learn.demonstrations and recipe.demonstrator is not None:
                stages.append(
                    imitation_stage(recipe, config, opened.learner, opened.demonstrations, machine)
                )
            score = score_of(chosen_reward) if chosen_reward else None
            stages.append(
                reward_stage(
                    recipe,
                    config,
                    opened.learner,
                    opened.machine,
                    algo=algo,
                    score=score,
                    look=preflight,
                    recorder=recorder,
                    before=sum(stage.updates for stage in stages),
                )
            )
            await _run_all(recipe, config, opened, stages, recorder, resume=resume)
            # A resumed run may have had no update left to publish.
            await opened.learner.refresh()
            reported = await run_on_rank_0(lambda: _reported(recipe, config, opened.learner))
            return reported or {}


@contextmanager
def _on_device(machine: Machine, config: RunConfig) -> Iterator[tuple[str, RunConfig]]:
    dtype = resolved_precision(config.tune.dtype, resolved_device(machine.device))
    # FSDP2 computes in bf16 and offloads, on one device too; nothing else needs a process group.
    by_fsdp = dtype == "bf16" or machine.offload or "WORLD_SIZE" in os.environ
    start = process_group if by_fsdp else on_device
    with start(machine.device) as device:
        # In the run's settings as a name of its own: another machine's "auto" may be another one.
        yield device, config.changed(dtype=dtype)


def _open_folder(recipe: Recipe, config: RunConfig, machine: Machine, *, resume: bool) -> None:
    """Write the settings into the run's folder, or compare them with those of a resumed run."""
    with writing(config.out, ConfigError):
        open_run(recipe, config, machine, resume=resume)
        # After the folder was accepted, and before actors can find the address of the run before.
        if not resume:
            forget_queue(config.out)


@dataclass(frozen=True, slots=True, eq=False)
class _Opened:
    """A learner that is ready to train.

    demonstrations: on rank 0. machine: with the address of the run's own server, on rank 0.
    server: that server, if there is one, on rank 0.
    """

    learner: Learner
    demonstrations: Sequence[Rollout]
    machine: Machine
    server: Any


@asynccontextmanager
async def _opened(
    recipe: Recipe,
    config: RunConfig,
    machine: Machine,
    algo: RLAlgorithm,
    device: str,
    vllm: Any,  # noqa: ANN401 - the wing's
) -> AsyncIterator[_Opened]:
    """The learner over all ranks, with the server that it samples from; closed in the end."""
    async with AsyncExitStack() as stack:

        async def on_first() -> _Opened:
            # FSDP2 moves the shards to the device; the whole model may have no room there.
            place = "cpu" if dist.is_initialized() else device
            learner, demonstrations = await make_learner(recipe, config, machine, place)
            # While the model is whole: it is what the server starts from.
            learner, served_machine, server = await stack.enter_async_context(
                served_learner(learner, config, machine, vllm, device)
            )
            return _Opened(learner, demonstrations, served_machine, server)

        made = await run_on_rank_0(on_first)
        learner = distribute_learner(made.learner if made else None, config, algo, device, machine)
        await stack.enter_async_context(aclosing(learner))
        if rank() == 0:
            learner = await stack.enter_async_context(with_agent(learner, config.sample.agent))
        yield replace(made, learner=learner) if made else _Opened(learner, (), machine, None)


async def _reported(recipe: Recipe, config: RunConfig, learner: Learner) -> Mapping[str, float]:
    # More episodes than on the way, since this is the number that is reported.
    results = await evaluate(recipe, config, learner.make_policy, config.evaluate.final_episodes)
    # Two of each set, to read: numbers alone do not tell a habit from a skill.
    samples = [task for tasks in evaluation_tasks(recipe, config, 2).values() for task in tasks]
    games = await play(samples, learner.make_policy)
    report(config.out, results=results, games=games, curves=recipe.curves)
    return results


async def _run_all(
    recipe: Recipe,
    config: RunConfig,
    opened: _Opened,
    stages: Sequence[Stage],
    recorder: Recorder,
    *,
    resume: bool,
) -> None:
    learner, server, ends = opened.learner, opened.server, stages[-1].ends
    if server is not None:
        # Without it, a trainer would wait ten minutes for a server that is not started again.
        ends.stop.failure = lambda: server.error
    updates = sum(stage.updates for stage in stages)

    async def evaluated(update: int) -> Mapping[str, float]:
        played: list[Episode] = []
        episodes = config.evaluate.eval_episodes
        try:
            return await evaluate(recipe, config, learner.make_policy, episodes, played.append)
        finally:
            recorder.write(played, use="evaluate", update=update)

    try:
        if resume:
            call_on_rank_0(lambda: _claim_run(config.out, stages[-1].trainer.batch_source))
        with closing(run_logger(config, opened.machine, updates)) as logger:
            run = Run(
                out=config.out,
                learner=learner,
                stages=tuple(stages),
                evaluate=evaluated,
                eval_every=config.evaluate.eval_every,
                logger=logger,
                guard=Floors(config),
            )
            await run_stages(run, resume=resume)
    # Also after an error: the threads of the queue's reader and of a push keep connections.
    finally:
        await ends.aclose()


def _claim_run(out: Path, source: BatchSource) -> None:
    """Keep every other trainer from the run, and drop what it made after its last checkpoint."""
    # In this order: a run that another trainer keeps must stay as it is.
    claim(source)
    forget_after_checkpoint(out)
