"""A whole training run to disk and back: params, optimizer, source, the random numbers of ranks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ludic_train.checkpoint import (
    CheckpointManager,
    Json,
    LoadedCheckpoint,
    optimizer_tensors,
    restore_optimizer,
    restore_rng,
    rng_state,
)
from ludic_train.errors import CheckpointError
from ludic_train.model import load_params
from ludic_train.ranks import gathered, rank, world_size
from ludic_train.sharding import like, sharded_modules, whole_params
from ludic_train.shards import read_shards, write_shards
from ludic_train.trainer import Trainer

# Trained params of a sharded model stand beside the optimizer's tensors, under this.
PARAM = "param/"
SHARDS = "shards"
# Writes the model to a folder; the mapping holds whole params where the model's own are sharded.
WriteModel = Callable[[Path, Mapping[str, Tensor] | None], None]


def save_training(
    manager: CheckpointManager,
    trainer: Trainer,
    write_model: WriteModel,
    *,
    extra: Json | None = None,
) -> None:
    """Write checkpoint `trainer.version`, from which `resume_training` goes on bit for bit.

    All ranks call it; rank 0 writes, and none returns before the checkpoint is complete.
    extra: what else JSON should hold. Raises CheckpointError.
    """
    sharded = bool(sharded_modules(trainer.model))
    params = {n: t.cpu() for n, t in whole_params(trainer.model)} if sharded else None
    tensors = optimizer_tensors(trainer.optimizer, trainer.model)
    if params is not None:
        names = [n for n, p in trainer.model.named_parameters() if p.requires_grad]
        tensors |= {PARAM + name: params[name] for name in names}
    rngs = [json.loads(state) for state in gathered(json.dumps(rng_state()).encode())]
    if rank() == 0:
        manager.save(
            trainer.version,
            write_model=lambda folder: write_model(folder, params),
            tensors=tensors,
            state={"trainer": trainer.state_dict(), "rngs": rngs, "extra": dict(extra or {})},
        )
    _wait_for_all()


def save_shards(manager: CheckpointManager, trainer: Trainer, *, extra: Json | None = None) -> None:
    """As `save_training`, but each rank writes its own part and nothing is put together.

    For models that fit on no single rank. The checkpoint holds no model in Hugging Face format;
    `resume_training` reads it with any number of ranks.
    """
    draft = manager.directory / f"shards_{trainer.version:08d}.incomplete"
    draft.mkdir(parents=True, exist_ok=True)
    _wait_for_all()
    write_shards(draft, _shard_tensors(trainer))
    rngs = [json.loads(state) for state in gathered(json.dumps(rng_state()).encode())]

    def move_draft(folder: Path) -> None:
        draft.rename(folder / SHARDS)

    if rank() == 0:
        manager.save(
            trainer.version,
            write_model=move_draft,
            tensors={},
            state={"trainer": trainer.state_dict(), "rngs": rngs, "extra": dict(extra or {})},
        )
    _wait_for_all()


def _shard_tensors(trainer: Trainer) -> dict[str, Tensor]:
    """The trained params and what the optimizer keeps of them, as they are spread."""
    params = {PARAM + n: p for n, p in trainer.model.named_parameters() if p.requires_grad}
    return params | optimizer_tensors(trainer.optimizer, trainer.model, put_together=False)


def _wait_for_all() -> None:
    if world_size() > 1:
        torch.distributed.barrier()


def resume_training(
    manager: CheckpointManager, trainer: Trainer, which: Path | str = "auto"
) -> Mapping[str, Any] | None:
    """Put a checkpoint into a fresh, equal trainer; returns what `extra` was.

    which: an exact path; "latest" for the newest complete one; "auto" for that too, where None is
        returned and nothing changed if there is none yet. A path without a complete checkpoint
        raises CheckpointNotFound.
    Another number of ranks may go on; only with the same one are the results the same to the bit.
    """
    if which == "auto" and not manager.steps():
        return None
    checkpoint = manager.load("latest" if which == "auto" else which)
    if (shards := checkpoint.model_dir / SHARDS).is_dir():
        moments = _restore_shards(trainer, shards)
    else:
        _restore_params(trainer, checkpoint)
        moments = {n: t for n, t in checkpoint.tensors.items() if not n.startswith(PARAM)}
    restore_optimizer(trainer.optimizer, trainer.model, moments)
    trainer.load_state_dict(checkpoint.state["trainer"])
    rngs = checkpoint.state["rngs"]
    restore_rng(rngs[rank() % len(rngs)])
    extra: Mapping[str, Any] = checkpoint.state["extra"]
    return extra


def _restore_shards(trainer: Trainer, folder: Path) -> dict[str, Tensor]:
    """Put the params in place; returns this rank's part of what the optimizer keeps."""
    own = {n: p for n, p in trainer.model.named_parameters() if p.requires_grad}
    stored = read_shards(folder, {PARAM + name: param for name, param in own.items()})
    with torch.no_grad():
        for name, param in own.items():
            param.copy_(stored[PARAM + name])
    wanted = {f"{key}/{n}": p for key in ("exp_avg", "exp_avg_sq") for n, p in own.items()}
    steps = {f"step/{name}": torch.tensor(0.0) for name in own}
    return read_shards(folder, wanted | steps)


def _restore_params(trainer: Trainer, checkpoint: LoadedCheckpoint) -> None:
    stored = {n.removeprefix(PARAM): t for n, t in checkpoint.tensors.items() if PARAM in n}
    if not stored and not sharded_modules(trainer.model):
        load_params(trainer.model, checkpoint.model_dir)
        return
    if not stored:
        raise CheckpointError(
            f"{checkpoint.path} was saved by a run without shards, so a sharded model cannot read "
            "its params from it; load them (load_model) before shard_model, and start anew"
        )
    own = {n: p for n, p in trainer.model.named_parameters() if p.requires_grad}
    if stored.keys() != own.keys():
        strange = sorted(stored.keys() ^ own.keys())[:3]
        raise CheckpointError(f"{checkpoint.path} and the model differ in the params {strange}")
    with torch.no_grad():
        for name, param in own.items():
            param.copy_(like(param, stored[name]))
