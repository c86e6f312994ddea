"""Params from a trainer: staged, checked, and put into the model all at once.

Until `put_in` the model is unchanged, so a wrong name, shape or dtype, a missing param or a lost
trainer leaves the server with its old version.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ludic_train.cluster.publish.control import SESSION_OPEN
from ludic_train.cluster.publish.transports import in_thread
from ludic_train.cluster.servers.local.schemas import InitInfo, UpdateInfo
from ludic_train.errors import PublishError
from ludic_train.models.checkpoint_names import hub_params, model_params
from ludic_vllm.receiver import Receiver
from ludic_vllm.wire import (
    ParamInfo,
    buffer_bytes,
    checksum,
    copy_bytes,
    few,
    host_memory,
    info_of,
    mapped,
    unpacked,
)


@dataclass(frozen=True, slots=True)
class Staged:
    """Params beside the model, by name, and the buffers that hold them, uint8 [bytes] each."""

    params: dict[str, Tensor] = field(default_factory=dict)
    buffers: list[Tensor] = field(default_factory=list)


class ParamsReceiver:
    """Receives params for `model` over TCP or from files; every error is a PublishError.

    A session goes `start`, `receive` per chunk, `complete`, `put_in`. Any error in a session closes
    it, and so does an update with `abort`. One session is open at a time.
    Memory: staged params take as much as the model, on the CPU. It is kept for the next session,
    since the kernel clears new memory, which takes longer than to copy params into it.
    host: address that other servers fetch them from, while and after they arrive; None takes the
        one from which this process reaches the trainer.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.host: str | None = None
        self._params = dict(model.named_parameters())
        # Trainers send the names of checkpoints, as vLLM takes them.
        meta = ((name, torch.empty_like(p, device="meta")) for name, p in self._params.items())
        self._expected = {name: info_of(name, p) for name, p in hub_params(model, meta)}
        # None while no session is open.
        # The params of the open session that have arrived.
        self._session: Staged | None = None
        # Buffers that the model's params are in now, and those that were left by a swap.
        self._live: list[Tensor] = []
        self._spare: list[Tensor] = []
        self._receiver: Receiver | None = None

    async def meet(self, info: InitInfo) -> None:
        """Connect to the trainer that calls, in place of an earlier one.

        info: address of the trainer; files need no connection.
        Raises PublishError if it cannot be reached within `info.timeout_s` seconds.
        """
        self.close()
        if info.transport == "tcp":
            self._receiver = await in_thread(
                lambda: Receiver(
                    info.trainer,
                    bytes.fromhex(info.secret),
                    info.first_member,
                    host=self.host,
                    timeout_s=info.timeout_s,
                )
            )

    def close(self) -> None:
        """Close the connection to the trainer."""
        if self._receiver is not None:
            self._receiver.close()
        self._receiver = None

    def start(self) -> None:
        """Open a session. Raises PublishError if one is open already."""
        if self._session is not None:
            raise PublishError(f"a weight update is {SESSION_OPEN}: finish it, or abort it first")
        self._session = Staged()

    async def receive(self, update: UpdateInfo) -> None:
        """Stage some params; returns when they have arrived and match the model.

        update: names, dtypes and shapes of the params, and the file that holds them, if any.
        Raises PublishError, and closes the session, for params that the model does not have, and
        for missing ones after the last chunk.
        """
        session = self._opened()
        try:
            await self._stage(update, session)
            if update.last:
                self._require_all(session)
        except BaseException:
            self._close(session)
            raise

    def complete(self) -> Staged:
        """All params of the session, for `put_in`; the session is closed.

        Raises PublishError if no session is open, or some params are missing.
        """
        session = self._opened()
        self._close(session)
        self._require_all(session)
        return session

    def put_in(self, staged: Staged) -> None:
        """Put the params into the model, which must not be sampled from meanwhile.

        staged: result of `complete` or `loaded`, used here alone; tensors are moved to the model's
        device.
        """
        with torch.no_grad():
            for name, tensor in model_params(self._model, staged.params).items():
                param = self._params[name]
                if (tensor.device, tensor.dtype) == (param.device, param.dtype):
                    # No copy, so that the pause does not grow with the model. Tied params are one
                    # object, of which the memory is exchanged.
                    param.data = tensor
                else:
                    param.copy_(tensor)
        used = {param.untyped_storage().data_ptr() for param in self._params.values()}
        known = self._live + staged.buffers
        self._live = [each for each in known if each.untyped_storage().data_ptr() in used]
        self._spare = [each for each in known if each.untyped_storage().data_ptr() not in used]

    async def loaded(self, folder: Path) -> Staged:
        """All params of a checkpoint, for `put_in`.

        folder: holds *.safetensors.
        Raises PublishError for files that cannot be read, or hold params of another model.
        """
        staged = Staged()
        for path in sorted(folder.glob("*.safetensors")):
            staged.params.update(await in_thread(partial(load_file, path)))
        self._check(info_of(name, tensor) for name, tensor in staged.params.items())
        self._require_all(staged)
        return staged

    async def _stage(self, update: UpdateInfo, session: Staged) -> None:
        """Receive and check the params of an update, and add them to the session."""
        if update.abort:
            raise PublishError("the update was aborted on request")
        if not update.names:
            return
        # Before anything is received: the announcement decides how much memory that takes.
        self._check(update.infos())
        buffer = await self._received(update)
        # A chunk takes seconds to arrive, and other requests run meanwhile.
        if self._session is not session:
            raise PublishError("the update was aborted meanwhile")
        session.params.update(unpacked(update.infos(), buffer))
        session.buffers.append(buffer)

    async def _received(self, update: UpdateInfo) -> Tensor:
        """The buffer of an update, from its file or from its sources."""
        receiver, key = self._receiver, (update.session, update.index)
        size = buffer_bytes(update.infos())
        buffer = self._memory(size)
        if update.path:
            # Copied before the pause: the model must not depend on memory of the trainer.
            await in_thread(lambda: copy_bytes(buffer, mapped(update.path, size)))
        elif receiver is None:
            raise PublishError("no trainer is connected: call /init_weight_transfer_engine first")
        else:
            # The only worker of its server.
            (sources,) = update.sources
            await in_thread(partial(receiver.fetch, key, buffer, sources))
        if update.checksum is not None:
            found = await in_thread(partial(checksum, buffer))
            if found != update.checksum:
                raise PublishError(
                    f"the checksum of {few(update.names)} is {found}, the trainer's "
                    f"{update.checksum}: the params did not arrive as they were sent"
                )
        if receiver is not None and not update.path:
            await in_thread(partial(receiver.report, key))
        return buffer

    def _memory(self, size: int) -> Tensor:
        """A buffer of that many bytes that nothing else uses, uint8 [bytes]."""
        for each in self._spare:
            if len(each) == size:
                # Not given back after an error: a thread may still be writing to it.
                self._spare = [other for other in self._spare if other is not each]
                return each
        return host_memory(size)

    def _opened(self) -> Staged:
        """The open session. Raises PublishError if there is none."""
        if self._session is None:
            raise PublishError("no weight update is open: call /start_weight_update first")
        return self._session

    def _close(self, session: Staged) -> None:
        """Close this session, if it is still the open one."""
        # By identity: another session may be open by now.
        if self._session is session:
            self._session = None
            if self._receiver is not None:
                self._receiver.drop()

    def _check(self, infos: Iterable[ParamInfo]) -> None:
        """Raises PublishError for params that the model does not have."""
        wrong = [info for info in infos if self._expected.get(info.name) != info]
        if wrong:
            known = self._expected.get(wrong[0].name)
            here = "" if known is None else f"(here it is {_described(known)})"
            raise PublishError(
                f"the model has no params of {few(map(_described, wrong))}; is the trainer's "
                f"model another one? {here}"
            )

    def _require_all(self, staged: Staged) -> None:
        """Raises PublishError if a param of the model is missing."""
        if missing := sorted(self._expected.keys() - staged.params.keys()):
            raise PublishError(f"the update lacks {few(missing)}")


def _described(info: ParamInfo) -> str:
    """Name, shape and dtype of a param, for an error message."""
    return f"{info.name} {list(info.shape)} {info.dtype}"
