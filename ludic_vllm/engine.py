"""The receiving end inside a vLLM worker: params are staged, checked, and put in all at once.

Params are prepared while requests are sampled from, and the server needs a pause for
`finish_weight_update` alone. Until then the model is unchanged, so a wrong name, shape or dtype, or
a missing param, leaves the server with its old version. Written for vLLM 0.28 to 0.33.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import snapshot_download
from torch import Tensor
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from ludic_vllm.files import Format, format_of, params_in, require_formats
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
    _staged: Mapping[str, Tensor] | None = None
    _preparing: Future[None] | None = None
    # True once a session was prepared whole; False if none can be.
    is_prepared: bool | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - those of vLLM
        super().__init__(*args, **kwargs)
        # Now, because vLLM's own reload writes another folder into the config.
        self._origin = (self.model_config.model, self.model_config.revision)

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Do nothing."""

    def start_weight_update(self) -> None:
        """Begin with nothing staged."""
        self._drop()

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Check the params of the folder, and begin to prepare them in a thread.

        Raises ValueError for params that are not those of the model, for a folder that cannot be
        read, and for `abort`. After any error vLLM closes the session.
        """
        self._drop()
        if update_info.abort:
            raise ValueError("the update was aborted on request")
        params = dict(params_in(update_info.folder))
        # vLLM's loaders round to the type that the server computes in.
        require_formats(params, self._expected, {self.model_config.dtype, torch.float32})
        self._staged = params
        if self._twin is not None and self.is_prepared is not False:
            self._preparing = Future()
            work = (self._preparing, self._twin.begin(), params)
            # A daemon, because it must not delay the exit of the server.
            Thread(target=self._prepare, args=work, daemon=True).start()

    def finish_weight_update(self) -> None:
        """Load the params. Raises ValueError, and changes nothing, if none are staged."""
        staged, preparing = self._staged, self._preparing
        if staged is None:
            raise ValueError("the update has no params: call /update_weights with a folder first")
        if preparing is not None:
            preparing.result()
        # Released before the load, so that a failed one leaves nothing for the next session.
        self._drop()
        if self._twin is not None and self.is_prepared:
            self._twin.swap()
            return
        # vLLM loads each layer in the layout of the checkpoint, then converts it again.
        initialize_layerwise_reload(self.model)
        self.model.load_weights(iter(staged.items()))
        finalize_layerwise_reload(self.model, self.model_config)
        repair_packed(self.model)

    def shutdown(self) -> None:
        """Drop all that is staged."""
        self._drop()

    @property
    def state(self) -> dict[str, Any]:
        """State of the staged params.

        "settled": True if they are prepared, or cannot be. "error": the reason for which they
        cannot be put in. "prepared": True if nothing is loaded in the pause.
        """
        preparing = self._preparing
        is_settled = preparing is None or preparing.done()
        error = preparing.exception() if preparing is not None and is_settled else None
        return {
            "settled": is_settled,
            "error": str(error or ""),
            "prepared": bool(self.is_prepared),
        }

    def _drop(self) -> None:
        """Drop all that is staged, and end a thread that reads it."""
        if self._preparing is not None and self._twin is not None:
            # A trainer may remove the files as soon as it knows that the session has ended.
            self._twin.begin()
        self._staged = self._preparing = None

    def _prepare(self, done: Future[None], session: int, params: Mapping[str, Tensor]) -> None:
        """Fill the twin. The first error ends the attempt to prepare, and not the session."""
        assert self._twin is not None
        try:
            if self._twin.load(session, params):
                self.is_prepared = True
            done.set_result(None)
        # The loaders of any architecture may raise anything.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if self.is_prepared:
                done.set_exception(ValueError(reason))
            else:
                self._give_up_preparing(reason)
                done.set_result(None)

    @cached_property
    def _twin(self) -> PreparedParams | None:
        """The copy of the model that is filled meanwhile; None for a model that has none."""
        try:
            # It needs more of vLLM than all versions have.
            from ludic_vllm.prepared import PreparedParams, reason_not_to_prepare
        except ImportError as error:
            self._give_up_preparing(str(error))
            return None
        if reason := reason_not_to_prepare(self.model):
            self._give_up_preparing(reason)
            return None
        return PreparedParams(self.model, self.model_config.dtype)

    def _give_up_preparing(self, reason: str) -> None:
        self.is_prepared = False
        logging.getLogger(__name__).warning(
            "params are not prepared before a swap, which takes longer then: %s", reason
        )

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
