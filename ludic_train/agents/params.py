"""Params from a trainer: staged, checked, and put into the model all at once.

Until `put_in` the model is unchanged, so a wrong name, shape or dtype, or a missing param leaves
the server with its old version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import torch
from torch import Tensor, nn

from ludic_train.errors import PublishError
from ludic_train.models.checkpoint_names import hub_params, model_params
from ludic_train.models.modules import persistent_buffers
from ludic_vllm.files import format_of, params_in, require_formats


class Update(msgspec.Struct, kw_only=True):
    """Params of a version. folder: of their safetensors. abort: True ends the session instead."""

    folder: str = ""
    abort: bool = False


class StagedParams:
    """Params on their way from folders into `model`; every error is a PublishError.

    A session goes `start`, `receive`, `complete`, `put_in`. Any error in a session closes it, and
    so does an update with `abort`. One session is open at a time.
    Staged params take as much memory as the model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._params = dict(model.named_parameters()) | persistent_buffers(model)
        # Trainers send the names of checkpoints, as vLLM takes them.
        meta = ((name, torch.empty_like(p, device="meta")) for name, p in self._params.items())
        self._expected = {name: format_of(p) for name, p in hub_params(model, meta)}
        # The params of the open session; None while no session is open.
        self._session: dict[str, Tensor] | None = None

    def start(self) -> None:
        """Open a session. Raises PublishError if one is open already."""
        if self._session is not None:
            # The words are those of vLLM, by which publishers know this error.
            raise PublishError("a weight update is already active: finish it, or abort it first")
        self._session = {}

    async def receive(self, update: Update) -> None:
        """Stage the params of a folder, once they match the model.

        Raises PublishError, and closes the session, for params that are not those of the model.
        """
        session = self._opened()
        try:
            if update.abort:
                raise PublishError("the update was aborted on request")
            staged = await asyncio.to_thread(self._read, update.folder)
            # Other requests run meanwhile.
            if self._session is not session:
                raise PublishError("the update was aborted meanwhile")
            session.update(staged)
        except BaseException:
            # By identity: another session may be open by now.
            if self._session is session:
                self._session = None
            raise

    def complete(self) -> Mapping[str, Tensor]:
        """The params of the session, for `put_in`; the session is closed.

        Raises PublishError if no session is open, or none were staged.
        """
        session, self._session = self._opened(), None
        if not session:
            raise PublishError("the update has no params: call /update_weights with a folder first")
        return session

    def put_in(self, staged: Mapping[str, Tensor]) -> None:
        """Put the params into the model, which must not be sampled from meanwhile.

        staged: result of `complete`, used here alone; tensors are moved to the model's device.
        """
        with torch.no_grad():
            for name, tensor in model_params(self._model, dict(staged)).items():
                param = self._params[name]
                if (tensor.device, tensor.dtype) == (param.device, param.dtype):
                    # No copy, so that the pause does not grow with the model. Tied params are one
                    # object, of which the memory is exchanged.
                    param.data = tensor
                else:
                    param.copy_(tensor)

    def _read(self, folder: str) -> dict[str, Tensor]:
        """The params of a folder, in memory of this process. Raises PublishError."""
        try:
            params = dict(params_in(folder))
            require_formats(params, self._expected)
        except ValueError as error:
            raise PublishError(str(error)) from error
        # Copied before the pause: the model must not depend on files of the trainer.
        return {name: tensor.clone() for name, tensor in params.items()}

    def _opened(self) -> dict[str, Tensor]:
        """The open session. Raises PublishError if there is none."""
        if self._session is None:
            raise PublishError("no weight update is open: call /start_weight_update first")
        return self._session
