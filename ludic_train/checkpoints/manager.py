"""Checkpoints that are complete or absent, and from which a run continues bit for bit.

    DIR/step_00000020/
        model/                  files of `write_model`: a Hugging Face folder
        optimizer.safetensors   named tensors
        state.json              schema, step, and the caller's state; written last
    DIR/.owner                  name of the one that may save

A checkpoint is written to `step_00000020.incomplete`, synced to disk and then renamed, so a killed
process never leaves half of one under the final name. Nothing in it is a pickle.
"""

from __future__ import annotations

import json
import random
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ludic_gym.errors import ConfigError
from ludic_train.checkpoints.layout import (
    INCOMPLETE,
    STATE,
    complete_updates,
    folder_name,
    sync_to_disk,
)
from ludic_train.disk import disk_failure, writing
from ludic_train.distributed.fsdp import like, whole
from ludic_train.errors import CheckpointError, CheckpointNotFound, Superseded

SCHEMA = 2
OWNER = ".owner"

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCheckpoint:
    """Content of a checkpoint; the model stays on disk, in `model_dir`.

    step: its number. tensors: those of `save`, on the CPU. state: that of `save`, read from JSON.
    """

    path: Path
    step: int
    tensors: Mapping[str, Tensor]
    state: Json

    @property
    def model_dir(self) -> Path:
        """The folder that `write_model` filled."""
        return self.path / "model"


class CheckpointManager:
    """Checkpoints of one run, in one directory that nothing else writes to.

    The file OWNER names the manager that claimed the directory last; another one that saves gets
    Superseded, so that a trainer whose place was taken writes nothing any more.
    keep_last: number that is kept; older ones are removed after a new one is complete.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     manager = CheckpointManager(folder, keep_last=2)
    ...     for step in (10, 20, 30):
    ...         _ = manager.save(step, write_model=lambda folder: None, tensors={}, state={})
    ...     manager.steps()
    [20, 30]
    """

    def __init__(self, directory: Path | str, *, keep_last: int = 2) -> None:
        if keep_last < 1:
            raise ConfigError(f"keep_last is {keep_last}; at least one checkpoint must be kept")
        self.directory = Path(directory)
        self.keep_last = keep_last
        self._name = secrets.token_hex(8)
        self._claimed = False

    def claim(self) -> None:
        """Become the one that may save here. `save` does this at first, if it was not done.

        Raises CheckpointError where nothing can be written.
        """
        # Under a name of its own and then renamed: no reader finds an owner that is half written.
        draft = self.directory / f"{OWNER}.{self._name}"
        with writing(self.directory, CheckpointError):
            self.directory.mkdir(parents=True, exist_ok=True)
            try:
                draft.write_text(self._name)
                draft.replace(self.directory / OWNER)
            except OSError:
                draft.unlink(missing_ok=True)
                raise
        self._claimed = True

    def steps(self) -> list[int]:
        """The steps of the complete checkpoints, ascending."""
        return complete_updates(self.directory)

    def save(
        self,
        step: int,
        *,
        write_model: Callable[[Path], None],
        tensors: Mapping[str, Tensor],
        state: Json,
    ) -> Path:
        """Write checkpoint `step` and return its directory, complete and synced to disk.

        write_model: fills the existing, empty folder it is given.
        state: anything JSON can hold; no nan and no infinity.
        Raises CheckpointError for a state that JSON cannot hold, for a step that is not newer than
        all others here (nothing is ever overwritten), and where the disk takes no more; Superseded
        where another manager has claimed the directory meanwhile.
        """
        if step < 0:
            raise CheckpointError(f"step is {step}; it must be 0 or more")
        # Before anything is written: a state that JSON cannot hold must leave no draft.
        try:
            # Python writes NaN, which no other reader of JSON accepts.
            record = {"schema": SCHEMA, "step": step, "state": state}
            text = json.dumps(record, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise CheckpointError(
                f"the state of step {step} does not fit into JSON: {error}"
            ) from error
        if not self._claimed:
            self.claim()
        self._insist_on_claim()
        with writing(self.directory, CheckpointError):
            return self._save(step, text, write_model, tensors)

    def _save(
        self,
        step: int,
        text: str,
        write_model: Callable[[Path], None],
        tensors: Mapping[str, Tensor],
    ) -> Path:
        """Write checkpoint `step`, with its encoded state. Raises as `save`, and OSError."""
        done = self.steps()
        if done and step <= done[-1]:
            raise CheckpointError(
                f"cannot save step {step} to {self.directory}: it holds step {done[-1]} already; "
                "a run that continues from an older checkpoint needs a directory of its own"
            )
        # A killed run left them, and one with the same name would be mixed with the new files.
        for leftover in self.directory.glob(f"step_*{INCOMPLETE}"):
            shutil.rmtree(leftover)
        draft = self.directory / (folder_name(step) + INCOMPLETE)
        try:
            (draft / "model").mkdir(parents=True)
            write_model(draft / "model")
            # safetensors refuses tensors that are not contiguous.
            on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            save_file(on_cpu, draft / "optimizer.safetensors")
            (draft / STATE).write_text(text)
            # Content before name: after a power cut, a complete name must stand for complete files.
            for file in [*draft.rglob("*"), draft]:
                sync_to_disk(file)
        except (OSError, SafetensorError) as error:
            # Another owner removes what is half written.
            self._insist_on_claim()
            # A disk that is full has no room for a half of one.
            shutil.rmtree(draft, ignore_errors=True)
            raise CheckpointError(
                f"{disk_failure(draft, error)}, and resume from "
                f"{folder_name(done[-1]) if done else 'the beginning'}"
            ) from error
        # Once more: writing takes long, and another may have claimed the directory meanwhile.
        self._insist_on_claim()
        path = draft.rename(self.directory / folder_name(step))
        # The new name is content of the directory: until that is on disk, a power cut may take the
        # name back.
        sync_to_disk(self.directory)
        # Last, so that a save that fails leaves what there was. The 1 is the new checkpoint, which
        # is not among the older ones and is kept.
        for old in done[: max(len(done) + 1 - self.keep_last, 0)]:
            # If killed in the middle of a removal, a half must not look like a whole checkpoint.
            doomed = self.directory / folder_name(old)
            shutil.rmtree(doomed.rename(doomed.with_name(doomed.name + INCOMPLETE)))
        return path

    def _insist_on_claim(self) -> None:
        if (self.directory / OWNER).read_text() != self._name:
            raise Superseded(
                f"another trainer has continued the run of {self.directory}; start one per run"
            )

    def load(self, which: Path | str = "latest") -> LoadedCheckpoint:
        """The checkpoint at an exact path, or the newest complete one here.

        Raises CheckpointNotFound where there is none; no other one is taken instead. To start
        anew where there is none yet, see `resume_training`.
        """
        if which != "latest":
            return load_checkpoint(Path(which))
        if done := self.steps():
            return load_checkpoint(self.directory / folder_name(done[-1]))
        torn = sorted(path.name for path in self.directory.glob("step_*"))
        left = f"; never finished: {', '.join(torn)}" if torn else ""
        raise CheckpointNotFound(f"no complete checkpoint in {self.directory}{left}")


def load_checkpoint(path: Path) -> LoadedCheckpoint:
    """The checkpoint in the directory `path`, tensors on the CPU.

    Raises CheckpointNotFound where there is no complete one, CheckpointError where a file of it
    cannot be read.
    """
    if not (path / STATE).is_file() or path.name.endswith(INCOMPLETE):
        complete = ", ".join(map(folder_name, CheckpointManager(path.parent).steps()))
        raise CheckpointNotFound(
            f"no complete checkpoint at {path}; {path.parent} has {complete or 'none'}"
        )
    try:
        record = json.loads((path / STATE).read_text())
        tensors = load_file(path / "optimizer.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"the checkpoint {path} is damaged: {error}") from error
    if record.get("schema") != SCHEMA:
        raise CheckpointError(
            f"the checkpoint {path} has schema {record.get('schema')}; this version reads {SCHEMA}"
        )
    return LoadedCheckpoint(path=path, step=record["step"], tensors=tensors, state=record["state"])


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, *, put_together: bool = True
) -> dict[str, Tensor]:
    """The optimizer's state as "KEY/PARAMETER NAME" -> tensor, such as "exp_avg/lm_head.weight".

    The tensors are the live ones: write them before the next step. Those of a sharded model are
    whole, and all ranks must call this, unless they are not to be `put_together`. Learning rates
    and the like are the caller's to keep.
    """
    # By name and not by the optimizer's index, which changes with the order of the params.
    names = _names(optimizer, model)
    return {
        f"{key}/{names[param]}": whole(value) if put_together else value
        for param, state in optimizer.state.items()
        for key, value in state.items()
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]
) -> None:
    """Give a fresh optimizer of the same params the state that `optimizer_tensors` returned.

    Raises CheckpointError for a state of params that it does not have, or of another shape.
    """
    names = list(_names(optimizer, model).items())
    unknown = {key.partition("/")[2] for key in tensors} - {name for _, name in names}
    if unknown:
        raise CheckpointError(
            f"the checkpoint has optimizer state of {sorted(unknown)[:3]}, which this optimizer "
            "does not train; was another model, or LoRA, resumed?"
        )
    state = {i: _state_of(name, param, tensors) for i, (param, name) in enumerate(names)}
    # Its own groups: rates and weight decay are settings of this run and not state.
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def rng_state() -> dict[str, Any]:
    """State of Python's, numpy's and torch's global generators, as JSON can hold it.

    With CUDA in use, that of the current device too.
    """
    # As a dict, of which JSON cannot hold the key alone.
    of_numpy = np.random.get_state(legacy=False)
    of_numpy["state"]["key"] = of_numpy["state"]["key"].tolist()
    state = {
        "python": random.getstate(),
        "numpy": of_numpy,
        "torch": torch.get_rng_state().tolist(),
    }
    # Asking an unused device for its state would take memory on it.
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state().tolist()
    return state


def restore_rng(state: Json) -> None:
    """Set the global generators to what `rng_state` returned.

    Raises CheckpointError for the state of a CUDA device where there is none.
    """
    if "cuda" in state and not torch.cuda.is_available():
        raise CheckpointError(
            "the checkpoint was written on a CUDA device and there is none here; random numbers "
            "cannot continue as they would have"
        )
    # JSON made a list of the tuple that setstate insists on.
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    np.random.set_state(state["numpy"])
    torch.set_rng_state(torch.tensor(state["torch"], dtype=torch.uint8))
    if "cuda" in state:
        torch.cuda.set_rng_state(torch.tensor(state["cuda"], dtype=torch.uint8))


def _names(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[Tensor, str]:
    """Name by parameter, in the order of the optimizer's own indices."""
    names = {param: name for name, param in model.named_parameters()}
    trained = [param for group in optimizer.param_groups for param in group["params"]]
    if strangers := [tuple(param.shape) for param in trained if param not in names]:
        raise CheckpointError(
            f"the optimizer trains tensors of the shapes {strangers[:3]} that are no parameters of "
            "the model; give the model it was made for"
        )
    return {param: names[param] for param in trained}


def _state_of(name: str, param: Tensor, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The optimizer's state of one param by key, placed as the param is. Raises CheckpointError."""
    moments = {
        key.partition("/")[0]: t for key, t in tensors.items() if key.partition("/")[2] == name
    }
    for key, tensor in moments.items():
        # The optimizer's step count is a scalar, whatever the param.
        if tensor.ndim and tensor.shape != param.shape:
            raise CheckpointError(
                f"the checkpoint's {key} of {name} is {list(tensor.shape)}, the parameter here "
                f"{list(param.shape)}"
            )
    # Cloned, because the optimizer would keep and change the caller's tensors.
    return {key: like(param, t.clone()) if t.ndim else t.clone() for key, t in moments.items()}
