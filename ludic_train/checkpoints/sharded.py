"""Tensors that are spread over ranks, in files that each rank writes for itself.

    FOLDER/rank_00000.safetensors   the rank's part of each tensor
    FOLDER/rank_00000.json          where its part begins, in rows of the whole tensor

Nothing is gathered, so a model that fits on no single rank can be written; any number of ranks can
read it back. FSDP2 cuts tensors along their first dimension, and so do these files.

Why not torch.distributed.checkpoint: its index is a pickle, its completion needs a collective from
a thread that writes in the background, and its files are read by torch alone. A rank's index here
appears, by a rename, when its part is complete and on disk; so the whole is there once all indices
are, and no messages are needed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from transformers import PretrainedConfig

from ludic_train.checkpoints.layout import PARAM, SHARDS, sync_to_disk
from ludic_train.checkpoints.manager import load_checkpoint
from ludic_train.distributed.fsdp import local_part
from ludic_train.distributed.ranks import rank
from ludic_train.errors import CheckpointError
from ludic_train.models.checkpoint_names import hub_params
from ludic_train.models.load import auto_class

# Past the last row of any tensor.
_END = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """One rank's part of some tensors. starts: where it begins, in rows of the whole tensor."""

    tensors: Mapping[str, Tensor]
    starts: Mapping[str, int]


def own_shards(tensors: Mapping[str, Tensor]) -> Shards:
    """This rank's part of the tensors, not copied; whole ones, and copies, are of the first rank.

    Raises CheckpointError for a tensor that is cut along another dimension than the first.
    """
    parts = {name: tensor for name, tensor in tensors.items() if _is_first(tensor)}
    starts = {name: row_range(name, tensor)[0] for name, tensor in parts.items()}
    return Shards(tensors={n: local_part(t).detach() for n, t in parts.items()}, starts=starts)


def write_shards(folder: Path, shards: Shards, number: int) -> None:
    """Write the part of rank `number` to the folder, which must exist; its index comes last."""
    stem = folder / f"rank_{number:05d}"
    local = {name: tensor.cpu().contiguous() for name, tensor in shards.tensors.items()}
    save_file(local, stem.with_suffix(".safetensors"))
    sync_to_disk(stem.with_suffix(".safetensors"))
    # Under its final name only when it is whole: other ranks read the index as soon as it is there.
    draft = stem.with_suffix(".draft")
    draft.write_text(json.dumps(shards.starts))
    sync_to_disk(draft)
    draft.rename(stem.with_suffix(".json"))


def wait_for_shards(
    folder: Path, ranks: int, given_up: Callable[[], bool], *, timeout_s: float = 1800.0
) -> None:
    """Return when the parts of all ranks are complete.

    Raises CheckpointError once `given_up()` or after `timeout_s`.
    ranks: number of parts. given_up: True once a part will never come, such as after an error.
    """
    # Polled: file systems that several machines share report no changes.
    deadline = time.monotonic() + timeout_s
    while missing := [i for i in range(ranks) if not (folder / f"rank_{i:05d}.json").exists()]:
        if given_up() or time.monotonic() > deadline:
            raise CheckpointError(f"{folder} never got the parts of ranks {missing}")
        time.sleep(0.02)


def whole_tensors(folder: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Tensor]]:
    """Names and whole tensors of a folder of shards, those that are wanted, one at a time."""
    indices = [json.loads(path.read_text()) for path in sorted(folder.glob("rank_*.json"))]
    for name in sorted(filter(wanted, set().union(*indices))):
        pieces = list(_pieces(folder, name, 0, _END))
        yield name, pieces[0] if pieces[0].ndim == 0 else torch.cat(pieces)


def read_shards(folder: Path, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of these names, each cut as the given one is.

    Raises CheckpointError where a part is missing.
    """
    stored: dict[str, Tensor] = {}
    for name, like in wanted.items():
        start, stop = row_range(name, like)
        pieces = list(_pieces(folder, name, start, stop))
        if not pieces:
            raise CheckpointError(f"{folder} has no part of {name}")
        rows = pieces[0] if like.ndim == 0 else torch.cat(pieces)
        needed = list(local_part(like).shape)
        if list(rows.shape) != needed:
            raise CheckpointError(
                f"{folder} gives {list(rows.shape)} for {name} and {needed} is needed; did "
                "a rank's file get lost, or is this another model?"
            )
        if isinstance(like, DTensor):
            mesh, placements, stride = like.device_mesh, like.placements, like.stride()
            rows = DTensor.from_local(
                rows.to(like.device), mesh, placements, shape=like.shape, stride=stride
            )
        stored[name] = rows
    return stored


def _pieces(folder: Path, name: str, start: int, stop: int) -> Iterator[Tensor]:
    """Parts of the files that lie in rows start to stop, in order."""
    # Ranks hold consecutive rows, so the order of files is that of rows.
    for index in sorted(folder.glob("rank_*.json")):
        first = json.loads(index.read_text()).get(name)
        if first is None:
            continue
        with safe_open(index.with_suffix(".safetensors"), "pt") as file:
            part = file.get_slice(name)
            shape = part.get_shape()
            if not shape:
                yield file.get_tensor(name)
                return
            low, high = max(start - first, 0), min(stop - first, shape[0])
            # A rank without rows still gets a tensor of the right width.
            if low < high or (start == stop and low == 0):
                yield part[low : max(high, low)]


def row_range(name: str, tensor: Tensor) -> tuple[int, int]:
    """The rows of the whole tensor that this rank holds: from, and up to but without."""
    if not isinstance(tensor, DTensor):
        return 0, tensor.shape[0] if tensor.ndim else 0
    if not all(p == Shard(0) or isinstance(p, Replicate) for p in tensor.placements):
        raise CheckpointError(f"{name} is cut as {tensor.placements}; only rows can be written")
    # Not len / ranks: torch gives the last ranks fewer rows, or none.
    shape, offset = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    return offset[0], offset[0] + shape[0]


def _is_first(tensor: Tensor) -> bool:
    """True on the first of the ranks that hold the same part of the tensor."""
    if not isinstance(tensor, DTensor):
        return rank() == 0
    at = tensor.device_mesh.get_coordinate()
    assert at is not None
    copies = zip(at, tensor.placements, strict=True)
    return not any(number for number, placed in copies if isinstance(placed, Replicate))


Part = dict[str, Tensor]


def export_params(
    checkpoint: Path | str,
    folder: Path | str,
    config: PretrainedConfig,
    *,
    dtype: torch.dtype | None = None,
    file_bytes: float = 5e9,
) -> list[Path]:
    """Write the params of a `save_shards` checkpoint in Hugging Face format; the files.

    config: of the model; written too, and gives the names and shapes that files have. Beside these
        the folder needs what `tokenizer.save_pretrained` writes.
    dtype: to write, None for that of the checkpoint.
    A file's worth of params, or a transformer block, is in memory at a time.
    Raises CheckpointError for a checkpoint that is not of shards, or of LoRA, whose few trained
    params `save_training` can write.
    """
    shards = load_checkpoint(Path(checkpoint)).model_dir / SHARDS
    if not shards.is_dir():
        raise CheckpointError(f"{checkpoint} holds no shards; its model is in {shards.parent}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weight_map: dict[str, int] = {}
    size = 0
    # Names say how many files there are, which is known at the end.
    drafts: list[Path] = []
    with torch.device("meta"):
        model = auto_class(config).from_config(config)
    for part in _files(hub_params(model, _params(shards, dtype)), file_bytes):
        drafts.append(folder / f"part_{len(drafts):05d}.incomplete")
        # transformers refuses a file that does not say for which library it was written.
        whole = {name: tensor.contiguous() for name, tensor in part.items()}
        save_file(whole, drafts[-1], metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, len(drafts))
        size += sum(tensor.nbytes for tensor in part.values())
    expected = hub_params(model, model.state_dict().items())
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    if lacking := sorted({name for name, _ in expected} - weight_map.keys() - tied):
        raise CheckpointError(
            f"{shards} lacks {len(lacking)} params of the model, such as {lacking[0]}: those that "
            "were frozen are in no checkpoint of shards; save with save_training"
        )
    config.save_pretrained(folder)
    names, count = ["model.safetensors"], len(drafts)
    if count > 1:
        names = [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
        index = {n: names[i - 1] for n, i in weight_map.items()}
        text = json.dumps({"metadata": {"total_size": size}, "weight_map": index}, indent=2)
        (folder / "model.safetensors.index.json").write_text(text)
    return [draft.rename(folder / name) for draft, name in zip(drafts, names, strict=True)]


def _params(shards: Path, dtype: torch.dtype | None) -> Iterator[tuple[str, Tensor]]:
    """Names and whole params of the shards, one at a time. Raises CheckpointError for LoRA."""
    for name, tensor in whole_tensors(shards, lambda name: name.startswith(PARAM)):
        if "lora_" in name:
            raise CheckpointError(
                f"{shards} holds adapters ({name}); save LoRA runs with save_training, which "
                "writes them in peft's format"
            )
        yield name.removeprefix(PARAM), tensor.to(dtype or tensor.dtype)


def _files(params: Iterator[tuple[str, Tensor]], file_bytes: float) -> Iterator[Part]:
    """The params cut where the next would make a file larger than allowed."""
    part: Part = {}
    for name, tensor in params:
        # A part of one tensor is written however large that is.
        if part and sum(t.nbytes for t in part.values()) + tensor.nbytes > file_bytes:
            yield part
            part = {}
        part[name] = tensor
    yield part
