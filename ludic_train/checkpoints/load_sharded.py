"""A model from its folder, of which each rank reads its shards alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from ludic_train.checkpoints.param_files import ParamFiles
from ludic_train.checkpoints.sharded import row_range
from ludic_train.distributed.fsdp import local_part, shard_model
from ludic_train.models.load import quiet
from ludic_train.models.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


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
            model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        tokenizer = load_tokenizer(folder)
    files.check(model)
    shard_model(model, param_dtype=param_dtype, device=device, offload=offload, replicas=replicas)
    read_shards(model, files)
    for module in model.modules():
        if module._buffers:
            # Computed from the config, and in no file.
            model._init_weights(module)
    return model.eval(), tokenizer


def read_shards(model: nn.Module, files: ParamFiles) -> None:
    """Read this rank's rows of each param that is in the files."""
    with torch.no_grad():
        for name, param in model.named_parameters():
            if name in files:
                start, stop = row_range(name, param)
                local_part(param).copy_(files.rows(name, start, stop))
