"""The receiving end inside a vLLM worker: params are staged, checked, and put in all at once.

Params are prepared while requests are sampled from, and the server needs a pause for
`finish_weight_update` alone. Until then the model is unchanged, so a wrong name, shape or dtype, or
a missing param, leaves the server with its old version. Written for vLLM 0.28 to 0.33.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import snapshot_download
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from ludic_vllm.files import Format, format_of, params_in
from ludic_vllm.staging import Staging, log_unprepared
from ludic_vllm.worker import repair_packed

if TYPE_CHECKING:
    from ludic_vllm.prepared import PreparedParams

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
    Params are prepared in the host's memory in a thread, the worker's shard alone. Those of models
    that vLLM converts in a way of its own are loaded in the pause, by vLLM.
    Files are mapped, so that the workers of a machine share one copy.
    """

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - those of vLLM
        super().__init__(*args, **kwargs)
        # Now, because vLLM's own reload writes another folder into the config.
        self._origin = (self.model_config.model, self.model_config.revision)

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Do nothing."""

    def start_weight_update(self) -> None:
        """Begin with nothing staged."""
        self.staging.drop()

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Check the params of the folder, and begin to prepare them.

        Raises ValueError as `Staging.stage` does, and for `abort`. After any error vLLM closes the
        session.
        """
        if update_info.abort:
            self.staging.drop()
            raise ValueError("the update was aborted on request")
        self.staging.stage(update_info.folder)

    def finish_weight_update(self) -> None:
        """Load the params. Raises ValueError, and changes nothing, if none are staged."""
        params = self.staging.take()
        if self._twin is not None and self.staging.is_prepared:
            self._twin.swap()
            return
        # vLLM loads each layer in the layout of the checkpoint, then converts it again.
        initialize_layerwise_reload(self.model)
        self.model.load_weights(iter(params.items()))
        finalize_layerwise_reload(self.model, self.model_config)
        repair_packed(self.model)

    def shutdown(self) -> None:
        """Drop all that is staged."""
        self.staging.drop()

    @cached_property
    def staging(self) -> Staging:
        """The params that are staged."""
        # vLLM's loaders round to the type that the server computes in.
        dtypes = {self.model_config.dtype, torch.float32}
        return Staging(self._expected(), dtypes, self._twin)

    @cached_property
    def _twin(self) -> PreparedParams | None:
        """The copy of the model that is filled meanwhile; None for a model that has none."""
        try:
            # It needs more of vLLM than all versions have.
            from ludic_vllm.prepared import PreparedParams, reason_not_to_prepare
        except ImportError as error:
            log_unprepared(str(error))
            return None
        if reason := reason_not_to_prepare(self.model):
            log_unprepared(reason)
            return None
        return PreparedParams(self.model, self.model_config.dtype)

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
