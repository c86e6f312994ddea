"""The receiving end inside a vLLM worker: params are checked, and loaded all at once.

Requests are sampled from until `finish_weight_update`, which needs a pause. Until then the model is
unchanged, so a wrong name, shape or dtype, or a missing param, leaves the server with its old
version. Written for vLLM 0.28 to 0.33.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from torch import Tensor, nn
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)
from vllm.platforms import current_platform

from ludic_vllm.files import Format, format_of, params_in, require_formats

# "type: ignore[misc]": vLLM is not installed where types are checked.


@dataclass(kw_only=True)
class InitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """Nothing: a folder needs no connection."""


@dataclass(kw_only=True)
class UpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """All params. folder: holds them in *.safetensors. abort: True ends the session instead."""

    folder: str = ""
    abort: bool = False


class StagedEngine(WeightTransferEngine):  # type: ignore[misc]
    """Loads the params of a folder once all of them are there and fit.

    vLLM makes one per worker, and calls each method on all workers, between two decoding steps.
    Files are mapped, so that the workers of a machine share one copy, and read in the pause.
    """

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - those of vLLM
        super().__init__(*args, **kwargs)
        # Now, because vLLM's own reload writes another folder into the config.
        self._origin = (self.model_config.model, self.model_config.revision)
        self._params: Mapping[str, Tensor] = {}

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Do nothing."""

    def start_weight_update(self) -> None:
        """Begin with nothing received."""
        self._params = {}

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Check the params of the folder.

        Raises ValueError for params that are not those of the model, a folder that cannot be read,
        and for `abort`. After any error vLLM closes the session.
        """
        self._params = {}
        if update_info.abort:
            raise ValueError("the update was aborted on request")
        params = dict(params_in(update_info.folder))
        # vLLM's loaders round to the type that the server computes in.
        require_formats(params, self._expected, {self.model_config.dtype, torch.float32})
        self._params = params

    def finish_weight_update(self) -> None:
        """Load the params. Raises ValueError, and changes nothing, if there are none."""
        # Dropped first, so that a failed load leaves nothing for the next session.
        params, self._params = self._params, {}
        if not params:
            raise ValueError("the update has no params: call /update_weights with a folder first")
        # vLLM loads each layer in the layout of the checkpoint, then converts it again.
        initialize_layerwise_reload(self.model)
        self.model.load_weights(iter(params.items()))
        finalize_layerwise_reload(self.model, self.model_config)
        repair_packed(self.model)

    def shutdown(self) -> None:
        """Drop what was received."""
        self._params = {}

    @cached_property
    def _expected(self) -> dict[str, Format]:
        """Formats of the checkpoint that the model was started from."""
        folder = Path(self._origin[0])
        if not folder.is_dir():
            # A hub id, which is in the local cache.
            model, revision = self._origin
            folder = Path(snapshot_download(model, revision=revision, local_files_only=True))
        formats = {name: format_of(tensor) for name, tensor in params_in(folder)}
        if getattr(self.model_config.hf_config, "tie_word_embeddings", False):
            # Some checkpoints hold the tied head as well; a trainer sends it once.
            formats.pop("lm_head.weight", None)
        return formats


def repair_packed(model: nn.Module) -> None:
    """Pack params on a CPU again that a reload leaves as they are.

    On a CPU, vLLM 0.32 computes from a packed copy of its params. A reload renews all copies but
    that of a head that is tied to the embeddings, and leaves experts of a mixture unpacked.
    """
    if not current_platform.is_cpu():
        return
    for module in model.modules():
        if (kernel := getattr(getattr(module, "quant_method", None), "moe_kernel", None)) is None:
            continue
        # As vLLM does when it loads the experts first.
        kernel.fused_experts.process_weights_after_loading(module)
    if not getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        return
    tables = [m for m in model.modules() if isinstance(m, VocabParallelEmbedding)]
    embeddings = [m for m in tables if not isinstance(m, ParallelLMHead)]
    for head in tables:
        if isinstance(head, ParallelLMHead):
            head.weight = embeddings[0].weight
            dispatch_cpu_unquantized_gemm(head, remove_weight=False)
