"""The loop of every run: updates, evaluations, checkpoints.

An evaluation comes before its checkpoint. A run that is killed between the two repeats the
evaluation when it is resumed, and the same updates before it; the later numbers of an update count,
as `read_metrics` has it.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from ludic_gym.harness import write_harness
from ludic_train.checkpoints.async_saver import BackgroundSaver
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.training_state import resume_training
from ludic_train.disk import writing
from ludic_train.distributed.ranks import (
    all_gather,
    call_on_rank_0,
    number_from_rank_0,
    rank,
    run_on_rank_0,
    world_size,
)
from ludic_train.engine.client import LocalChatClient
from ludic_train.errors import (
    CheckpointError,
    Collapsed,
    DiskError,
    EmptyBatch,
    Interrupted,
    NonFiniteUpdate,
    ParamsLost,
    RankError,
    SamplerMismatch,
)
from ludic_train.loggers.console import ConsoleLogger
from ludic_train.loggers.loggers import (
    IMITATION,
    JSONLLogger,
    Logger,
    MultiLogger,
    TensorBoardLogger,
    TrackioLogger,
    WandbLogger,
)
from ludic_train.metrics import Metrics, values
from ludic_train.models.chat_profile import chat_profile, write_profile
from ludic_train.models.load import save_model
from ludic_train.runs.config import RunConfig
from ludic_train.runs.ends import Ends
from ludic_train.runs.folder import METRICS
from ludic_train.runs.learner import Learner
from ludic_train.runs.machine import Machine, Tracker
from ludic_train.runs.signals import StopRequested, own_stop_signals
from ludic_train.trainer.trainer import OnUpdate, Trainer

# From the number of updates made to the numbers of an evaluation then.
Evaluate = Callable[[int], Awaitable[Mapping[str, float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Updates made by one trainer, such as supervised fine-tuning or reinforcement learning.

    name: for messages. updates: of the whole stage, those before a resume included.
    imitates: True if it learns from demonstrations, and not from rewards.
    look: called before the first update; its error ends the run.
    ends: controls of the trainer's source and publisher.
    """

    name: str
    trainer: Trainer
    updates: int
    imitates: bool = False
    look: Callable[[], Awaitable[None]] | None = None
    ends: Ends = field(default_factory=Ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A training run in the folder `out`: its stages, in order, on one learner.

    stages: their number and order must not change between a run and its resumption.
    evaluate: gives numbers that are logged as "eval/..."; called every `eval_every` updates and at
        the end of each stage. Everything is saved then.
    logger: gets the updates of all stages under one count. Where some stage imitates, the metric
        IMITATION is 1 in its updates and 0 in the others'.
    guard: called with the metrics of each update; its error ends the run.
    """

    out: Path
    learner: Learner
    stages: tuple[Stage, ...]
    evaluate: Evaluate
    eval_every: int
    logger: Logger
    guard: Callable[[Metrics], None] = lambda metrics: None

    @property
    def checkpoints(self) -> CheckpointManager:
        """The checkpoints of this run."""
        return CheckpointManager(self.out / "checkpoints")


async def run_stages(run: Run, *, resume: bool) -> None:
    """Evaluate, make the updates that are left, and evaluate and save on the way.

    resume: continue from the latest checkpoint, which must be of the same stages.
    On a first Ctrl-C or SIGTERM, save and raise Interrupted; a second one ends the process.
    Raises CheckpointError for a checkpoint of another run, EmptyBatch where a stage finds nothing
    to learn from, and what the trainer raises.
    """
    # First, because a policy of this folder can be played as soon as there is a model in it.
    call_on_rank_0(lambda: _write_prompting(run.out, run.learner))
    first = _restore(run) if resume else 0
    with own_stop_signals() as is_stopped, BackgroundSaver(run.checkpoints) as saver:
        if not resume:
            await _evaluate(run, 0)
        for position in range(first, len(run.stages)):
            await _run_stage(run, position, saver, is_stopped)


def _write_prompting(out: Path, learner: Learner) -> None:
    """Write how the model is prompted, and print a line about its chat template."""
    write_harness(out, learner.harness)
    profile = chat_profile(learner.tokenizer)
    write_profile(out, profile)
    print(f"chat: {profile.text(learner.tokenizer)}", flush=True)


async def _run_stage(
    run: Run, position: int, saver: BackgroundSaver, is_stopped: Callable[[], bool]
) -> None:
    """Make the updates of one stage. Raises Interrupted after a stop, once all is saved.

    is_stopped: of this rank alone.
    """
    stage, trainer = run.stages[position], run.stages[position].trainer
    offset, began = _offset(run, position), trainer.version
    imitates = any(each.imitates for each in run.stages)
    marks = {IMITATION: float(stage.imitates)} if imitates else {}

    def log(version: int, metrics: Metrics) -> None:
        saver.check()
        if version == began + 1:
            # After the first update: kernels and memory are known once they have been used.
            write_compute(run.out, run.learner, trainer)
        run.logger.log(offset + version, values(metrics) | marks)
        run.guard(metrics)

    def on_update(version: int, metrics: Metrics) -> None:
        # A guard that stops the run has to stop it on all ranks.
        call_on_rank_0(lambda: log(version, metrics))

    async def last_published() -> None:
        with suppress(StopRequested):
            await stage.ends.finish()

    # The source was made before there were handlers of signals.
    stage.ends.stop.is_set = is_stopped
    if stage.look is not None and trainer.version == 0:
        await run_on_rank_0(stage.look)
    ended = trainer.version >= stage.updates
    while not ended:
        before = trainer.version
        ended = not await _learned(stage, on_update, position) or trainer.version >= stage.updates
        # A batch may hold several updates, so that a multiple of `eval_every` may be passed over.
        due = ended or before // run.eval_every != trainer.version // run.eval_every
        if due:
            await _evaluate(run, offset + trainer.version)
        # A stop on any rank is one on all; their signals come at different times.
        stopping = any(all_gather(b"y" * is_stopped()))
        # A stop saves without an evaluation, since schedulers soon send SIGKILL.
        if due or (stopping and number_from_rank_0(lambda: stage.ends.is_settled(trainer.version))):
            _save(run, position, saver)
        if ended and not stopping:
            await run_on_rank_0(last_published)
            # The wait for a server ends at a stop too.
            stopping = any(all_gather(b"y" * is_stopped()))
        if stopping:
            saver.finish()
            raise Interrupted


async def _learned(stage: Stage, on_update: OnUpdate, position: int) -> bool:
    """Make the updates of one batch; False, with a note, where a stage has nothing left to learn.

    A stop that is requested ends a wait for a batch, or for a server; so does a server that lost
    its params, which are then published before the next wait.
    Raises EmptyBatch where there never was anything to learn.
    """
    failed: Exception | None = None
    try:
        await stage.trainer.train(1, on_update=on_update)
    except (NonFiniteUpdate, SamplerMismatch):
        # From metrics that all ranks share: each has raised it.
        raise
    except Exception as error:
        # Other ranks know that rank 0 met an error, and not yet if it ends the run.
        if rank() != 0 and not isinstance(error, RankError):
            raise
        failed = error
    verdict = number_from_rank_0(lambda: _verdict(stage, failed, position))
    if verdict == _PUBLISH_AGAIN:
        # The next call publishes the params again before it waits for a batch.
        stage.trainer.published = None
    return verdict != _ENDED


_GO_ON, _PUBLISH_AGAIN, _ENDED = range(3)


def _verdict(stage: Stage, failed: Exception | None, position: int) -> int:
    """The consequence of an error for a stage, on rank 0. Raises errors that end the run."""
    if failed is None or isinstance(failed, StopRequested):
        return _GO_ON
    if isinstance(failed, ParamsLost):
        print(f"publishing once more: {failed}", flush=True)
        return _PUBLISH_AGAIN
    # A stage before this one may have taught all that there is to learn.
    if isinstance(failed, EmptyBatch) and (stage.trainer.version or position):
        print(f"{stage.name} ended after {stage.trainer.version} updates: {failed}")
        return _ENDED
    raise failed


def _offset(run: Run, position: int) -> int:
    return sum(stage.updates for stage in run.stages[:position])


async def _evaluate(run: Run, update: int) -> None:
    await run.learner.refresh()

    async def on_first() -> None:
        started = time.perf_counter()
        numbers = await run.evaluate(update)
        # A resumed run does not evaluate first, and is to sample the same bits.
        if isinstance(run.learner.client, LocalChatClient):
            await run.learner.client.forget_prefixes()
        named = {f"eval/{name}": number for name, number in numbers.items()}
        run.logger.log(update, {**named, "seconds/evaluate": time.perf_counter() - started})

    await run_on_rank_0(on_first)


def _save(run: Run, position: int, saver: BackgroundSaver) -> None:
    """Save a checkpoint, and the model for other programs, while training continues."""
    learner, trainer = run.learner, run.stages[position].trainer
    update = _offset(run, position) + trainer.version
    saver.finish()
    # A stop right after an evaluation would save the same state twice.
    if number_from_rank_0(lambda: update in run.checkpoints.steps()):
        return
    write_model = partial(save_model, learner.model, learner.tokenizer)
    saver.save_training(
        trainer,
        write_model,
        extra={"stage": position},
        step=update,
        model_folder=run.out / "model",
    )


def _restore(run: Run) -> int:
    """Load the latest checkpoint into the run; the position of the stage that continues."""
    checkpoint = run.checkpoints.load("latest")
    position = int(checkpoint.state["extra"]["stage"])
    if position >= len(run.stages):
        raise CheckpointError(
            f"{checkpoint.path} is of stage {position}, but this run has {len(run.stages)} stages; "
            "resume with the recipe that made it"
        )
    # Of one stage alone: those before it have ended, and left only the model, which is in here.
    resume_training(run.checkpoints, run.stages[position].trainer, checkpoint.path)
    if checkpoint.step >= sum(stage.updates for stage in run.stages):
        # The last save may have failed after its checkpoint, and no further one follows.
        def copy_model() -> None:
            with writing(run.out / "model", DiskError):
                shutil.copytree(checkpoint.model_dir, run.out / "model", dirs_exist_ok=True)

        call_on_rank_0(copy_model)
    return position


COMPUTE = "compute.json"


def write_compute(out: Path, learner: Learner, trainer: Trainer) -> None:
    """Write the facts to OUT/compute.json, once the trainer has made an update.

        {"device": "cuda:0", "card": "NVIDIA H100 80GB HBM3", "ranks": 1,
         "trained": {"float32 on cuda:0": 494032768}, "frozen": {},
         "moments": {"float32 on cuda:0": 988065536},
         "attention": [{"kernel": "flash", "dtype": "bfloat16"}], "padding": null,
         "cache": "bfloat16 on cuda:0", "float32_products": "high",
         "versions": {"torch": "2.13.0", "cuda": "13.0", "transformers": "5.16.1"}}

    trained, frozen, moments: numbers by type and device, of all ranks together. attention: of
        torch's kernels, in the forward passes of updates. padding: the reason for which each row
        holds one item, null where items share rows. cache: of the local engine, null where
        servers sample.
    """
    device, client = learner.device, learner.client
    params = list(learner.model.parameters())
    states = trainer.optimizer.state.values()
    # A count of steps has no dimension, and is no moment.
    moments = [t for state in states for t in state.values() if isinstance(t, Tensor) and t.ndim]
    cached = client.cached_keys if isinstance(client, LocalChatClient) else None
    facts = {
        "device": device,
        "card": None if device == "cpu" else torch.cuda.get_device_name(device),
        "ranks": world_size(),
        "trained": _places(p for p in params if p.requires_grad),
        "frozen": _places(p for p in params if not p.requires_grad),
        "moments": _places(moments),
        "attention": [each._asdict() for each in sorted(trainer.attention)],
        "padding": trainer.padding,
        "cache": None if cached is None else _place(cached),
        "float32_products": torch.get_float32_matmul_precision(),
        "versions": {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "transformers": transformers.__version__,
        },
    }
    (out / COMPUTE).write_text(json.dumps(facts, indent=2) + "\n")


def _places(tensors: Iterable[Tensor]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for tensor in tensors:
        counted[_place(tensor)] += tensor.numel()
    return dict(counted)


def _place(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"


# One update's mean is noise.
UPDATES = 10


class Floors:
    """Raises Collapsed when the mean of the last ten updates is below a floor of the settings."""

    def __init__(self, config: RunConfig) -> None:
        floors = {"entropy": config.evaluate.least_entropy, "reward": config.evaluate.least_reward}
        self._floors = {name: floor for name, floor in floors.items() if floor is not None}
        self._out = config.out
        self._seen: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=UPDATES))

    def __call__(self, metrics: Metrics) -> None:
        """Look at the metrics of an update."""
        # Of learning from rewards: updates that imitate have none.
        if "reward" not in metrics and not self._seen["reward"]:
            return
        for name, floor in self._floors.items():
            if name in metrics:
                self._seen[name].append(metrics[name].value)
            seen = self._seen[name]
            if len(seen) == UPDATES and sum(seen) / UPDATES < floor:
                raise Collapsed(
                    f"{name} was {sum(seen) / UPDATES:.4g} over {UPDATES} updates, below "
                    f"least_{name}={floor:g}: {self._out}/checkpoints has earlier states; start "
                    "again with a lower --lr, or with --entropy or --kl"
                )


PROJECT = "ludic"


def run_logger(config: RunConfig, machine: Machine, updates: int) -> MultiLogger:
    """The file of a run, the terminal, and the trackers of `machine.log`, as one logger.

    On ranks other than 0 it logs nothing.
    updates: of the whole run. Raises ConfigError for a tracker that is not installed.
    """
    if rank() != 0:
        return MultiLogger()
    # Trackers first, whose package may be missing: then no other logger is left open.
    trackers = [_tracker(name, config) for name in machine.log]
    console = ConsoleLogger(updates, title=config.out.name, every=None)
    return MultiLogger(JSONLLogger(config.out / METRICS), console, *trackers)


def _tracker(name: Tracker, config: RunConfig) -> Logger:
    """A tracker that shows a run under its folder's name, and a resumed one as the same run."""
    settings: dict[str, Any] = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in config.flat().items()
    }
    # Of the run in the folder, made at the first request: other folders may have the same name.
    path = config.out / "tracker-id"
    if not path.exists():
        path.write_text(secrets.token_hex(4), encoding="ascii")
    # WANDB_MODE=offline and the like are the user's, through the services' own variables.
    name_and_id = f"{config.out.name}-{path.read_text(encoding='ascii')}"
    if name == "wandb":
        where: dict[str, Any] = {"dir": str(config.out), "id": name_and_id}
        return WandbLogger(PROJECT, config=settings, name=name_and_id, resume="allow", **where)
    if name == "trackio":
        return TrackioLogger(PROJECT, config=settings, name=name_and_id, resume="allow")
    return TensorBoardLogger(config.out / "tensorboard")
