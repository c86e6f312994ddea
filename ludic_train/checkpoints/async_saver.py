"""Checkpoints that are written while training continues.

Tensors are copied to the CPU's memory, which is kept for the next copies: 12 bytes per trained
float32 param with AdamW. A thread then writes, syncs and renames them, and exchanges no messages
with other ranks: they see each other's files, so all ranks must see one file system.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Self

from safetensors import SafetensorError
from torch import Tensor

from ludic_train.checkpoints.manager import CheckpointManager, Json
from ludic_train.checkpoints.sharded import own_shards, wait_for_shards, write_shards
from ludic_train.checkpoints.training_state import (
    WriteModel,
    new_draft,
    run_state,
    shard_tensors,
    trained_params,
    whole_snapshot,
    write_from_draft,
)
from ludic_train.disk import writing
from ludic_train.distributed.device import host_copies
from ludic_train.distributed.ranks import all_gather, rank, world_size
from ludic_train.errors import CheckpointError, DiskError
from ludic_train.models.modules import is_adapted
from ludic_train.trainer.trainer import Trainer


class BackgroundSaver:
    """Saves as `save_training` and `save_shards` do, and returns as soon as copies are made.

        with BackgroundSaver(CheckpointManager("run/checkpoints")) as saver:
            while trainer.version < 1000:
                await trainer.train(10)
                saver.save_training(trainer, write_model)

    One checkpoint is written at a time: a save waits for the one before. An error of a checkpoint
    is raised, as CheckpointError, by the next save or at the end of the `with`. All ranks call the
    same methods in the same order.
    manager: of the run's checkpoints; the same directory on all ranks.
    """

    def __init__(self, manager: CheckpointManager) -> None:
        self.manager = manager
        # One thread, so that checkpoints are completed in the order of their numbers.
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self._given_up = Event()
        self._copies: dict[str, Tensor] = {}

    def save_training(
        self,
        trainer: Trainer,
        write_model: WriteModel,
        *,
        extra: Json | None = None,
        step: int | None = None,
        model_folder: Path | str | None = None,
    ) -> None:
        """As `training_state.save_training`; `write_model` always gets copies of the params.

        Of a LoRA model these are the adapters' alone.
        model_folder: gets the model too, once the checkpoint is complete.
        """
        self.finish()
        snapshot, model = whole_snapshot(trainer, extra=extra, step=step), trainer.model
        if rank() != 0:
            # Something to wait for, so that all ranks meet in `finish`.
            self._writing = self._threads.submit(lambda: None)
            return
        params = snapshot.params
        if params is None:
            params = trained_params(model) if is_adapted(model) else dict(model.named_parameters())
        copies = replace(
            snapshot,
            params=self._copied("model/", params),
            tensors=self._copied("tensors/", snapshot.tensors),
        )

        def write() -> None:
            copies.write(self.manager, write_model)
            # After the checkpoint: a crash here leaves an older model, which no resumed run reads.
            if model_folder is not None:
                with writing(Path(model_folder), DiskError, (SafetensorError,)):
                    write_model(Path(model_folder), copies.params)

        self._writing = self._threads.submit(write)

    def save_shards(
        self, trainer: Trainer, *, extra: Json | None = None, step: int | None = None
    ) -> None:
        """As `training_state.save_shards`."""
        self.finish()
        state = run_state(trainer, extra)
        number = trainer.version if step is None else step
        draft = new_draft(self.manager, number)
        shards_here = own_shards(shard_tensors(trainer))
        shards = replace(shards_here, tensors=self._copied("tensors/", shards_here.tensors))
        mine, ranks = rank(), world_size()

        def write() -> None:
            write_shards(draft, shards, mine)
            if mine == 0:
                wait_for_shards(draft, ranks, self._given_up.is_set)
                write_from_draft(self.manager, draft, number, state)

        self._writing = self._threads.submit(write)

    def check(self) -> None:
        """Raise CheckpointError if what this rank wrote last has failed; waits for nothing."""
        writing = self._writing
        if writing is not None and writing.done() and (error := writing.exception()) is not None:
            raise CheckpointError(f"a save failed: {type(error).__name__}: {error}") from error

    def finish(self) -> None:
        """Return when the checkpoint that is being written is complete; all ranks call it.

        Raises CheckpointError on every rank if it failed on any.
        """
        writing, self._writing = self._writing, None
        if writing is None:
            return
        # Rank 0 may be waiting for a part that never comes, so the others report first.
        failed = _errors(None if rank() == 0 else writing)
        if failed:
            self._given_up.set()
        failed += _errors(writing if rank() == 0 else None)
        self._given_up.clear()
        if failed:
            raise CheckpointError(f"a save failed: {'; '.join(failed)}") from (writing.exception())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if error is None:
                self.finish()
        finally:
            # After an error the other ranks may be gone, so no message is exchanged here.
            self._threads.shutdown(wait=True)
        if self._writing is not None and self._writing.exception():
            logging.getLogger(__name__).error("a save failed", exc_info=self._writing.exception())

    def _copied(self, prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors in memory that nothing else changes, until the next save."""
        named = ((prefix + name, tensor) for name, tensor in tensors.items())
        copies = host_copies(named, self._copies)
        return {name: copies[prefix + name] for name in tensors}


def _errors(writing: Future[None] | None) -> list[str]:
    """Errors of all ranks, once the future that each gives here has ended."""
    error = None if writing is None else writing.exception()
    text_here = "" if error is None else f"rank {rank()}: {type(error).__name__}: {error}"
    return [text.decode() for text in all_gather(text_here.encode()) if text]
