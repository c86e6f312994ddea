"""Export of a checkpoint of shards to files that any program reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, PretrainedConfig

from ludic_train.checkpoints.layout import PARAM, SHARDS
from ludic_train.checkpoints.manager import load_checkpoint
from ludic_train.checkpoints.sharded import whole_tensors
from ludic_train.errors import CheckpointError
from ludic_train.models.checkpoint_names import hub_params

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
        model = AutoModelForCausalLM.from_config(config)
    for part in _files(hub_params(model, _params(shards, dtype)), file_bytes):
        drafts.append(folder / f"part_{len(drafts):05d}.incomplete")
        # transformers refuses a file that does not say for which library it was written.
        whole = {name: tensor.contiguous() for name, tensor in part.items()}
        save_file(whole, drafts[-1], metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, len(drafts))
        size += sum(tensor.nbytes for tensor in part.values())
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
