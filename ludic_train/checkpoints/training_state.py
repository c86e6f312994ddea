"""Training runs to disk and back: params, optimizer, source, the random numbers of ranks."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ludic_train.checkpoints.layout import PARAM, SHARDS
from ludic_train.checkpoints.manager import (
    CheckpointManager,
    Json,
    LoadedCheckpoint,
    optimizer_tensors,
    restore_optimizer,
    restore_rng,
    rng_state,
)
from ludic_train.checkpoints.sharded import own_shards, read_shards, write_shards
from ludic_train.disk import writing
from ludic_train.distributed.fsdp import like, sharded_modules, whole_params
from ludic_train.distributed.ranks import all_gather, call_on_rank_0, rank
from ludic_train.errors import CheckpointError
from ludic_train.models.adapters import active_adapter
from ludic_train.models.checkpoint_names import model_params
from ludic_train.models.load import load_params
from ludic_train.models.modules import VALUE_HEAD, is_adapted, persistent_buffers
from ludic_train.sources.base import BatchSource, DurableSource
from ludic_train.trainer.trainer import Trainer

# Writes the model to a folder; the mapping holds whole params where the model's own are sharded.
WriteModel = Callable[[Path, Mapping[str, Tensor] | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A run at one update, ready to be written; ranks other than 0 hold no tensors.

    params: whole params by name, where those of the model cannot be written as they stand.
    tensors: state of the optimizer, and trained params of a sharded model, or a value head alone.
    state: as JSON holds it.
    """

    step: int
    params: Mapping[str, Tensor] | None
    tensors: Mapping[str, Tensor]
    state: Json

    def write(self, manager: CheckpointManager, write_model: WriteModel) -> None:
        """Make checkpoint `step` of it. Raises CheckpointError."""
        manager.save(
            self.step,
            write_model=lambda folder: write_model(folder, self.params),
            tensors=self.tensors,
            state=self.state,
        )


def save_training(
    manager: CheckpointManager,
    trainer: Trainer,
    write_model: WriteModel,
    *,
    extra: Json | None = None,
    step: int | None = None,
) -> None:
    """Write a checkpoint from which `resume_training` continues bit for bit.

    All ranks call it; rank 0 writes, and none returns before the checkpoint is complete.
    extra: further state, as JSON can hold it.
    step: the checkpoint's number, `trainer.version` if left out.

    Raises CheckpointError, also where updates of the last one's batch are left.
    """
    snapshot = whole_snapshot(trainer, extra=extra, step=step)
    call_on_rank_0(lambda: snapshot.write(manager, write_model))


def save_shards(
    manager: CheckpointManager,
    trainer: Trainer,
    *,
    extra: Json | None = None,
    step: int | None = None,
) -> None:
    """As `save_training`, but each rank writes its own part and nothing is put together.

    For models that fit on no single rank. The checkpoint holds no model in Hugging Face format,
    see `export_params`; `resume_training` reads it with any number of ranks.
    """
    state = run_state(trainer, extra)
    number = trainer.version if step is None else step
    draft = new_draft(manager, number)
    failed = ""
    try:
        write_shards(draft, own_shards(shard_tensors(trainer)), rank())
    except (OSError, SafetensorError) as error:
        failed = f"rank {rank()}: {error}"
    # Exchanged before anything is raised, or ranks that did not fail would wait for one that did.
    if failures := [text.decode() for text in all_gather(failed.encode()) if text]:
        raise CheckpointError(f"a save failed: {'; '.join(failures)}")
    call_on_rank_0(lambda: write_from_draft(manager, draft, number, state))


def whole_snapshot(
    trainer: Trainer, *, extra: Json | None = None, step: int | None = None
) -> Snapshot:
    """The run as it is, every tensor whole; all ranks must call it.

    Tensors are the live ones where nothing had to be put together.
    """
    params = None
    if sharded_modules(trainer.model):
        # Every rank has to take part in putting params together; one has to hold them.
        params = {name: p.cpu() for name, p in whole_params(trainer.model) if rank() == 0}
    tensors = optimizer_tensors(trainer.optimizer, trainer.model)
    # Once more and exactly: the model's folder may hold another type, or no frozen params, and has
    # no value head.
    exact = params is not None
    for name, param in trained_params(trainer.model).items():
        if exact or VALUE_HEAD in name:
            tensors[PARAM + name] = params[name] if params else param
    return Snapshot(
        step=trainer.version if step is None else step,
        params=params,
        tensors=tensors if rank() == 0 else {},
        state=run_state(trainer, extra),
    )


def run_state(trainer: Trainer, extra: Json | None) -> Json:
    """The state of a run that JSON holds; all ranks must call it.

    Raises CheckpointError inside a batch, whose rows no checkpoint holds.
    """
    if left := trainer.updates_left:
        raise CheckpointError(
            f"version {trainer.version} is inside a batch, of which {left} updates are left: a run "
            "that resumes there would lose them; save where `trainer.updates_left` is 0"
        )
    rngs = [json.loads(state) for state in all_gather(json.dumps(rng_state()).encode())]
    return {"trainer": trainer.state_dict(), "rngs": rngs, "extra": dict(extra or {})}


def new_draft(manager: CheckpointManager, step: int) -> Path:
    """An empty folder for the shards of a checkpoint; all ranks must call it."""
    draft = manager.directory / f"shards_{step:08d}.incomplete"

    def make() -> None:
        # A killed run may have left some, perhaps of more ranks than there are now.
        with writing(draft, CheckpointError):
            for leftover in manager.directory.glob("shards_*.incomplete"):
                shutil.rmtree(leftover)
            draft.mkdir(parents=True)

    call_on_rank_0(make)
    return draft


def write_from_draft(manager: CheckpointManager, draft: Path, step: int, state: Json) -> None:
    """Make checkpoint `step` of complete shards."""

    def move_draft(folder: Path) -> None:
        draft.rename(folder / SHARDS)

    manager.save(step, write_model=move_draft, tensors={}, state=state)


def shard_tensors(trainer: Trainer) -> dict[str, Tensor]:
    """The trained params and the optimizer's state of them, as they are spread; and the buffers."""
    model = trainer.model
    stored = trained_params(model) | ({} if is_adapted(model) else persistent_buffers(model))
    params = {PARAM + name: tensor for name, tensor in stored.items()}
    return params | optimizer_tensors(trainer.optimizer, trainer.model, put_together=False)


def trained_params(model: nn.Module) -> dict[str, nn.Parameter]:
    """The params that have a gradient, by name."""
    return {name: param for name, param in model.named_parameters() if param.requires_grad}


def resume_training(
    manager: CheckpointManager, trainer: Trainer, which: Path | str = "auto"
) -> Mapping[str, Any] | None:
    """Put a checkpoint into a fresh, equal trainer; its `extra`.

    which: an exact path; "latest" for the newest complete one; "auto" for that too, where None is
        returned and the trainer left as it is if there is none yet. A path without a complete
        checkpoint raises CheckpointNotFound.
    Queue and directory are claimed first, so that another trainer of this run ends; Superseded
    where it stays.
    Another number of ranks may continue; only with the same one are the results the same to the
    bit.
    """
    call_on_rank_0(partial(claim, trainer.batch_source))
    # After the queue's, whose contest decides which process continues, and before the newest one
    # is looked up: another trainer may be about to save, its first one too.
    call_on_rank_0(manager.claim)
    if which == "auto" and not manager.steps():
        return None
    checkpoint = manager.load("latest" if which == "auto" else which)
    shards = checkpoint.model_dir / SHARDS
    try:
        if shards.is_dir():
            moments = _restore_shards(trainer, shards)
        else:
            _restore_params(trainer, checkpoint)
            moments = {n: t for n, t in checkpoint.tensors.items() if not n.startswith(PARAM)}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"the checkpoint {checkpoint.path} is damaged: {error}") from error
    restore_optimizer(trainer.optimizer, trainer.model, moments)
    trainer.load_state_dict(checkpoint.state["trainer"])
    rngs = checkpoint.state["rngs"]
    # Last, because making and loading things may draw random numbers.
    restore_rng(rngs[rank() % len(rngs)])
    extra: Mapping[str, Any] = checkpoint.state["extra"]
    return extra


def claim(source: BatchSource) -> None:
    """Keep every other trainer from the source's data, where it waits elsewhere."""
    if isinstance(source, DurableSource):
        source.claim()


def _restore_shards(trainer: Trainer, folder: Path) -> dict[str, Tensor]:
    """Put the params in place; this rank's part of the optimizer's state."""
    params = trained_params(trainer.model)
    stored = read_shards(folder, {PARAM + name: param for name, param in params.items()})
    _copy_into(params, {name.removeprefix(PARAM): tensor for name, tensor in stored.items()})
    # The fresh optimizer has no state yet whose names could be read.
    wanted: dict[str, Tensor] = {}
    for name, param in params.items():
        moments = {"exp_avg": param, "exp_avg_sq": param, "step": torch.tensor(0.0)}
        wanted |= {f"{key}/{name}": tensor for key, tensor in moments.items()}
    return read_shards(folder, wanted)


def _restore_params(trainer: Trainer, checkpoint: LoadedCheckpoint) -> None:
    """Put the params of a whole checkpoint into the model. Raises CheckpointError."""
    stored = {n.removeprefix(PARAM): t for n, t in checkpoint.tensors.items() if PARAM in n}
    params = trained_params(trainer.model)
    # Those of one process are in the model's folder, but for a value head.
    if all(VALUE_HEAD in name for name in stored):
        if sharded_modules(trainer.model):
            stored = _params_of_files(checkpoint.model_dir, trainer.model) | stored
        else:
            load_params(trainer.model, checkpoint.model_dir)
            params = {name: param for name, param in params.items() if VALUE_HEAD in name}
    if stored.keys() != params.keys():
        strange = sorted(stored.keys() ^ params.keys())[:3]
        raise CheckpointError(f"{checkpoint.path} and the model differ in the params {strange}")
    for name, param in params.items():
        if stored[name].shape != param.shape:
            raise CheckpointError(
                f"{checkpoint.path} has {name} as {list(stored[name].shape)}, and the model as "
                f"{list(param.shape)}: resume with the settings that it was made with"
            )
    _copy_into(params, stored)


@torch.no_grad()
def _copy_into(params: Mapping[str, nn.Parameter], stored: Mapping[str, Tensor]) -> None:
    # In place: the optimizer and FSDP hold these very tensors.
    for name, param in params.items():
        param.copy_(like(param, stored[name]))


def _params_of_files(folder: Path, model: nn.Module) -> dict[str, Tensor]:
    """The params of a Hugging Face folder by the names that the model has for them."""
    # Whole files on every rank: this is for models that fit on one, saved by `save_training`.
    files = sorted(folder.glob("*.safetensors"))
    stored = {name: tensor for file in files for name, tensor in load_file(file).items()}
    if not is_adapted(model):
        return model_params(model, stored)
    # Adapters are written without their name.
    part = re.compile(rf"\.{re.escape(active_adapter(model))}(?=\.|$)")
    shorter = {part.sub("", name): name for name in trained_params(model)}
    return {shorter.get(name, name): tensor for name, tensor in stored.items()}
