"""Params from a trainer: staged, checked, and put into the model all at once.

Until `put_in` the model is untouched, so a wrong name, shape or dtype, a missing param or a lost
trainer leaves the server with the version it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch._C._distributed_c10d import Store
from torch.distributed import ProcessGroup

from ludic_train.errors import PublishError
from ludic_train.publishers.control import SESSION_OPEN
from ludic_train.publishers.transports import in_thread
from ludic_train.serving.local.schemas import InitInfo, UpdateInfo
from ludic_vllm.wire import (
    ParamInfo,
    broadcast,
    buffer_bytes,
    gloo_group,
    info_of,
    join_store,
    unpacked,
)

SHOWN_NAMES = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Session:
    """Between start and finish. staged: what has come."""

    staged: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Meeting:
    """The group with a trainer; the store has to live as long."""

    store: Store
    group: ProcessGroup


class ParamsReceiver:
    """Takes params for `model` over TCP or from files; every error is a PublishError.

    A session is closed by any error in it, and by an update with `abort`. While one is open, no
    second one can be.
    """

    def __init__(self, model: nn.Module) -> None:
        self._params = dict(model.named_parameters())
        self._session: _Session | None = None
        self._meeting: _Meeting | None = None

    async def meet(self, info: InitInfo) -> None:
        """Meet the trainer that calls; a meeting from before is given up."""
        self._meeting = None
        if info.transport == "gloo":
            self._meeting = await in_thread(partial(_met, info))

    def start(self) -> None:
        """Open a session."""
        if self._session is not None:
            raise PublishError(f"a weight update is {SESSION_OPEN}: finish it, or abort it first")
        self._session = _Session()

    async def receive(self, update: UpdateInfo) -> None:
        """Stage some params."""
        session = self._opened()
        try:
            await self._stage(update, session)
            if update.last:
                self._require_all(session.staged)
        except BaseException:
            self._close(session)
            raise

    def complete(self) -> dict[str, Tensor]:
        """All params of the session, which is closed; for `put_in`."""
        session = self._opened()
        self._close(session)
        self._require_all(session.staged)
        return session.staged

    def put_in(self, staged: dict[str, Tensor]) -> None:
        """Make these the model's; nobody may sample meanwhile."""
        with torch.no_grad():
            for name, tensor in staged.items():
                self._params[name].copy_(tensor)

    async def loaded(self, folder: Path) -> dict[str, Tensor]:
        """All params of a checkpoint, for `put_in`."""
        staged: dict[str, Tensor] = {}
        for path in sorted(folder.glob("*.safetensors")):
            staged |= await in_thread(partial(load_file, path))
        self._judge(info_of(name, tensor) for name, tensor in staged.items())
        self._require_all(staged)
        return staged

    async def _stage(self, update: UpdateInfo, session: _Session) -> None:
        if update.abort:
            raise PublishError("the update was given up, as asked")
        infos = update.infos()
        try:
            # Before anything is received: what is announced says how much memory that takes.
            self._judge(infos)
            came = await self._received(update.path, infos)
        except BaseException:
            # What is still on the way must not be taken for the next; and its sender shall not
            # wait for somebody to take it.
            self._meeting = None
            raise
        if self._session is not session:
            raise PublishError("the update was given up meanwhile")
        session.staged.update(came)

    async def _received(self, path: str, infos: Sequence[ParamInfo]) -> dict[str, Tensor]:
        if path:
            came = await in_thread(partial(load_file, path))
            self._judge(info_of(name, tensor) for name, tensor in came.items())
            return came
        if self._meeting is None:
            raise PublishError("no trainer is connected: call /init_weight_transfer_engine first")
        buffer = torch.empty(buffer_bytes(infos), dtype=torch.uint8)
        await in_thread(partial(broadcast, self._meeting.group, buffer))
        return dict(unpacked(infos, buffer))

    def _opened(self) -> _Session:
        if self._session is None:
            raise PublishError("no weight update is open: call /start_weight_update first")
        return self._session

    def _close(self, session: _Session) -> None:
        # Another one may be open by now.
        if self._session is session:
            self._session = None

    def _judge(self, infos: Iterable[ParamInfo]) -> None:
        """Raises PublishError for params that are not the model's."""
        own = {name: info_of(name, tensor) for name, tensor in self._params.items()}
        wrong = [info for info in infos if own.get(info.name) != info]
        if wrong:
            raise PublishError(
                f"the model has no params of {_few(_shown(info) for info in wrong)}; is the "
                f"trainer's model another one? {_served(own.get(wrong[0].name))}"
            )

    def _require_all(self, staged: dict[str, Tensor]) -> None:
        if missing := sorted(self._params.keys() - staged.keys()):
            raise PublishError(f"the update lacks {_few(missing)}")


def _met(info: InitInfo) -> _Meeting:
    store = join_store(info.master_address, info.master_port, timeout_s=info.timeout_s)
    group = gloo_group(
        store, rank=info.rank_offset, world_size=info.world_size, timeout_s=info.timeout_s
    )
    return _Meeting(store, group)


def _shown(info: ParamInfo) -> str:
    return f"{info.name} {list(info.shape)} {info.dtype}"


def _served(own: ParamInfo | None) -> str:
    return "" if own is None else f"(here it is {_shown(own)})"


def _few(texts: Iterable[str]) -> str:
    known = list(texts)
    more = f" and {len(known) - SHOWN_NAMES} more" if len(known) > SHOWN_NAMES else ""
    return ", ".join(known[:SHOWN_NAMES]) + more
