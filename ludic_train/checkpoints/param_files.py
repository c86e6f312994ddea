"""The files of a model's params, read a part of a tensor at a time."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoConfig

from ludic_train.checkpoints.sharded import row_range
from ludic_train.distributed.fsdp import local_part, shard_model
from ludic_train.errors import ModelNotFound, UnsupportedModel
from ludic_train.models.cache import hub_folder, resolved
from ludic_train.models.load import auto_class, quiet
from ludic_train.models.modules import VALUE_HEAD
from ludic_train.models.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Past the last row of any tensor.
_ALL = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamFiles:
    """The safetensors of a model in Hugging Face format. paths: file of each tensor, by its name.

    Params of a model with adapters are found under the names that they have without these.
    """

    paths: Mapping[str, Path]

    @classmethod
    def of(cls, name: str | Path) -> ParamFiles:
        """The files of a folder, of a model of Ludic's own, or of a downloaded one of the hub.

        Raises ModelNotFound where this machine has none.
        """
        name = resolved(name)
        folder = Path(name) if Path(name).is_dir() else hub_folder(str(name))
        paths: dict[str, Path] = {}
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, "pt") as file:
                paths |= dict.fromkeys(file.keys(), path)
        if not paths or not (folder / "config.json").is_file():
            raise ModelNotFound(
                f"there are no *.safetensors beside a config.json in {str(folder)!r}: give the "
                "folder of a model without adapters; `hf download` fetches one from the hub"
            )
        return cls(paths=paths)

    def __contains__(self, param: object) -> bool:
        return isinstance(param, str) and _name_in_file(param) in self.paths

    def rows(self, param: str, start: int, stop: int) -> Tensor:
        """Rows of a param, in the type of its file."""
        name = _name_in_file(param)
        # Opened for each, because the pages of a mapped file count as memory of the process.
        with safe_open(self.paths[name], "pt") as file:
            part: Tensor = file.get_slice(name)[start:stop]
        return part

    def whole(self, param: str) -> Tensor:
        """A whole param, in the type of its file."""
        return self.rows(param, 0, _ALL)

    def check(self, model: nn.Module) -> None:
        """Raise UnsupportedModel for params or buffers that the files do not give.

        Those of adapters and of a value head need not be there.
        """
        kind = type(model).__name__
        for param, tensor in model.named_parameters():
            if _is_added(param):
                continue
            shape = None
            if param in self:
                name = _name_in_file(param)
                with safe_open(self.paths[name], "pt") as file:
                    shape = file.get_slice(name).get_shape()
            if shape != list(tensor.shape):
                raise UnsupportedModel(
                    f"{param} of {kind} has the shape {list(tensor.shape)} in memory and {shape} "
                    "in its files, so its rows cannot be read by rank: load it with load_model, "
                    "and shard it with shard_model"
                )
        for name, module in model.named_modules():
            if module._buffers and "RotaryEmbedding" not in type(module).__name__:
                raise UnsupportedModel(
                    f"{name} of {kind} has buffers, {sorted(module._buffers)}, whose values are "
                    "not known here: load it with load_model, and shard it with shard_model"
                )


def hollow(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of the model with its params on the meta device, but for adapters and value head."""
    memo: dict[int, object] = {}
    for name, param in model.named_parameters():
        if not _is_added(name):
            # From `memo` deepcopy takes the copies that it has made, so tied params stay tied.
            empty = torch.empty_like(param, device="meta")
            memo[id(param)] = nn.Parameter(empty, param.requires_grad)
    return copy.deepcopy(model, memo)


def _is_added(param: str) -> bool:
    return ".lora_" in param or VALUE_HEAD in param


def _name_in_file(param: str) -> str:
    """The name without what adapters add to it."""
    return param.removeprefix("base_model.model.").replace(".base_layer.", ".")


def load_sharded(
    folder: str | Path,
    *,
    device: str = "cpu",
    param_dtype: torch.dtype | None = None,
    offload: bool = False,
    replicas: int = 1,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer of a Hugging Face folder, in float32, as `shard_model` leaves them.

    The model is made on the meta device and sharded there; then each rank reads its rows of each
    param, so that none ever holds more than its shards and one of them in the file's type. The
    params are those of `load_model` to the bit.
    folder: one that all ranks see, without adapters. Other arguments as of `shard_model`.
    Raises ModelNotFound where there is none, UnsupportedModel for a model whose files have other
    names or shapes than it has in memory, such as fused experts, and as `shard_model` does.
    """
    folder = Path(folder)
    files = ParamFiles.of(folder)
    with quiet():
        config = AutoConfig.from_pretrained(folder)
        with torch.device("meta"):
            model: PreTrainedModel = auto_class(config).from_config(config, dtype=torch.float32)
        tokenizer = load_tokenizer(folder)
    files.check(model)
    shard_model(model, param_dtype=param_dtype, device=device, offload=offload, replicas=replicas)
    read_own_rows(model, files)
    for module in model.modules():
        if module._buffers:
            # Computed from the config, and in no file.
            model._init_weights(module)
    return model.eval(), tokenizer


def read_own_rows(model: nn.Module, files: ParamFiles) -> None:
    """Read this rank's rows of each param that is in the files."""
    with torch.no_grad():
        for name, param in model.named_parameters():
            if name in files:
                start, stop = row_range(name, param)
                local_part(param).copy_(files.rows(name, start, stop))
