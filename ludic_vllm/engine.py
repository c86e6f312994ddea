"""The receiving end inside a vLLM worker: params are staged, checked, and put in all at once.

Params arrive while requests are sampled from, and the server needs a pause for
`finish_weight_update` alone. Until then the model is unchanged, so a wrong name or shape, a missing
param or a lost trainer leaves the server with its old version. Written for vLLM 0.28 to 0.33.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from huggingface_hub import snapshot_download
from safetensors import safe_open
from torch import Tensor
from torch._C._distributed_c10d import Store
from torch.distributed import ProcessGroup
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from ludic_vllm.cards import group_of, joined_store, opened, received
from ludic_vllm.merging import Merging, adapter_shapes, different_bases
from ludic_vllm.receiver import Receiver
from ludic_vllm.staging import Load, Receive, Staging
from ludic_vllm.wire import ParamInfo, buffer_bytes, few, host_memory, mapped
from ludic_vllm.worker import repair_packed

if TYPE_CHECKING:
    from ludic_vllm.prepared import PreparedParams

# "type: ignore[misc]": vLLM is not installed where types are checked.


@dataclass(kw_only=True)
class InitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """Address of the trainer. transport: "tcp", or "files" on a file system that both see.

    trainer: host and port. secret: of the trainer, in hexadecimal. first_member: number of the
    first worker. timeout_s: limit in seconds to connect. group: host, port and number of members of
    a group that the trainer broadcasts to; None for none.
    Raises ValueError for another transport.
    """

    transport: str = "files"
    trainer: tuple[str, int] = ("", 0)
    secret: str = ""
    first_member: int = 0
    timeout_s: float = 60.0
    group: tuple[str, int, int] | None = None

    def __post_init__(self) -> None:
        if self.transport not in ("tcp", "files"):
            raise ValueError(f'transport={self.transport!r} must be "tcp" or "files"')


@dataclass(kw_only=True)
class UpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Some params. path: the file of their buffer; shared: its handle on the worker's own card.

    With neither, it is broadcast to the group if there is one, or fetched from the sources.
    session, index: name of the chunk. sources: for each worker, addresses in order of preference.
    checksum: of the buffer, see `ludic_vllm.wire`; None checks nothing.
    last: True waits until all have arrived: if any param is missing, the session ends.
    abort: True ends the session instead, and drops the staged params.
    bases: at the end of a session, checksums of the params under adapters, by name: where those of
    the checkpoint are equal, adapters can come alone in further sessions.
    adapters: at the beginning of such a session, the rank by name of an adapted param. What follows
    are adapters, which are merged here into the params of the checkpoint.
    """

    names: list[str] = field(default_factory=list)
    dtype_names: list[str] = field(default_factory=list)
    shapes: list[list[int]] = field(default_factory=list)
    path: str = ""
    shared: dict[str, Any] | None = None
    session: str = ""
    index: int = 0
    sources: list[list[tuple[str, int]]] = field(default_factory=list)
    checksum: int | None = None
    last: bool = False
    abort: bool = False
    bases: dict[str, int] | None = None
    adapters: dict[str, int] | None = None

    @property
    def infos(self) -> tuple[ParamInfo, ...]:
        """The params in order."""
        rows = zip(self.names, self.dtype_names, self.shapes, strict=True)
        return tuple(ParamInfo(name=n, dtype=d, shape=tuple(s)) for n, d, s in rows)


class StagedEngine(WeightTransferEngine):  # type: ignore[misc]
    """Receives params over TCP or from files, and loads them when all have arrived and fit.

    vLLM makes one per worker, and calls each method on all workers, between two decoding steps.
    Params are prepared in the host's memory, the worker's shard alone. Those of models that vLLM
    converts in a way of its own, and those of the first session, are staged whole: if the first one
    cannot be prepared, vLLM loads them.
    Params from files are mapped, so that the workers of a machine share one copy.
    """

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    _receiver: Receiver | None = None
    # The group and what it was formed by, which must live as long.
    _group: ProcessGroup | None = None
    _store: Store | None = None
    _staging: Staging
    # True once a session was prepared whole; False if none can be.
    is_prepared: bool | None = None
    # True once adapters can come alone.
    merges = False
    _comparison = Thread()

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - those of vLLM
        super().__init__(*args, **kwargs)
        # Now, because vLLM's own reload writes another folder into the config.
        self._origin = (self.model_config.model, self.model_config.revision)

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Connect to the trainer, in place of an earlier one. Raises OSError if that fails."""
        self.shutdown()
        if init_info.transport == "files":
            return
        host, port = init_info.trainer
        self._receiver = Receiver(
            (str(host), int(port)),
            bytes.fromhex(init_info.secret),
            init_info.first_member + self._worker,
            timeout_s=init_info.timeout_s,
        )
        if init_info.group is not None:
            host, port, size = init_info.group
            limit_s = init_info.timeout_s
            self._store = joined_store(host, port, limit_s)
            self._group = group_of(
                self._store, 1 + self._worker, size, device=self.device, timeout_s=limit_s
            )

    def start_weight_update(self) -> None:
        """Begin with nothing staged."""
        self._drop()
        if self._prepared is not None:
            load = self._attempted(self._prepared.begin())
            self._staging = Staging(self._expected, load, keep=not self.is_prepared)

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Stage some params, in a thread; wait for all of them at the last part alone.

        Raises ValueError for params that the model does not have, for missing or damaged ones at
        the last part, and for `abort`, which also drops the staged params.
        """
        staging = self._staging
        try:
            if update_info.abort:
                raise ValueError("the update was aborted on request")
            if update_info.adapters is not None:
                self._expect_adapters(update_info.adapters)
            if update_info.bases is not None:
                self._comparison = Thread(
                    target=self._compare, args=(update_info.bases,), daemon=True
                )
                self._comparison.start()
            if update_info.names:
                receive, report = self._transfer(update_info)
                staging.add(update_info.infos, receive, update_info.checksum, report)
            if update_info.last:
                staging.settled()
        except BaseException:
            # After any error vLLM closes the session.
            self._drop()
            raise

    def _expect_adapters(self, ranks: Mapping[str, int]) -> None:
        """Have the session be of adapters alone. Raises ValueError where they cannot be merged."""
        if self._prepared is None or not self.is_prepared or not self.merges:
            raise ValueError("adapters alone come after a push of all params, with their bases")
        load = self._attempted(self._prepared.begin())
        merging = Merging(self._checkpoint, load)
        self._staging = Staging(adapter_shapes(ranks, self._expected), merging.take, keep=False)

    def _compare(self, bases: Mapping[str, int]) -> None:
        """Find out whether adapters of these bases can be merged here."""
        different = different_bases(bases, self._checkpoint)
        self.merges = not different
        if different:
            logging.getLogger(__name__).warning(
                "adapters come merged into all params: %s of the checkpoint that this server was "
                "started from is not the one under the trainer's adapters",
                few(different),
            )

    def _checkpoint(self) -> Iterator[tuple[str, Tensor]]:
        """The params that the model was started from."""
        for path in sorted(_checkpoint_folder(*self._origin).glob("*.safetensors")):
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118
                    if name in self._expected:
                        yield name, file.get_tensor(name)

    def finish_weight_update(self) -> None:
        """Load the params. Raises ValueError, and changes nothing, if some are missing."""
        staged = self._staging.settled()
        # Released before the load, so that a failed one leaves nothing for the next session.
        self._drop()
        if self._prepared is not None:
            self.is_prepared = True
            self._prepared.swap()
            return
        # vLLM loads each layer in the layout of the checkpoint, then converts it again.
        initialize_layerwise_reload(self.model)
        self.model.load_weights(iter(staged.items()))
        finalize_layerwise_reload(self.model, self.model_config)
        repair_packed(self.model)

    def shutdown(self) -> None:
        """Close the connection to the trainer."""
        if self._receiver is not None:
            self._receiver.close()
        self._receiver = self._group = self._store = None

    def _drop(self) -> None:
        """Drop all that is staged."""
        self._staging = Staging(self._expected)
        if self._receiver is not None:
            self._receiver.drop()

    @property
    def is_settled(self) -> bool:
        """True if the announced params have arrived and are prepared, or cannot be."""
        return self._staging.is_settled and not self._comparison.is_alive()

    @property
    def _prepared(self) -> PreparedParams | None:
        """The twin that is filled meanwhile; None for a model that cannot be prepared."""
        return None if self.is_prepared is False else self._twin

    @cached_property
    def _twin(self) -> PreparedParams | None:
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

    def _attempted(self, load: Load) -> Load:
        """The function, whose first errors end the attempt to prepare and not the session."""

        def attempt(params: Mapping[str, Tensor], is_last: bool) -> None:
            if self.is_prepared is False:
                return
            try:
                load(params, is_last)
            # The loaders of any architecture may raise anything.
            except Exception as error:
                if self.is_prepared:
                    raise ValueError(f"{type(error).__name__}: {error}") from error
                self._give_up_preparing(f"{type(error).__name__}: {error}")

        return attempt

    def _give_up_preparing(self, reason: str) -> None:
        self.is_prepared = False
        logging.getLogger(__name__).warning(
            "params are not prepared before a swap, which takes longer then: %s", reason
        )

    @property
    def _worker(self) -> int:
        """Number of this worker in the server."""
        parallel = self.parallel_config
        # Data-parallel engines each count their workers from 0.
        return int(parallel.data_parallel_index * parallel.world_size + parallel.rank)

    def _transfer(self, update_info: UpdateInfo) -> tuple[Receive, Callable[[str], object]]:
        """Functions that return the buffer of an update, and that report its arrival."""
        num_bytes, receiver = buffer_bytes(update_info.infos), self._receiver
        if update_info.path:
            # Mapped here and not in the thread, after whose start the file may be removed.
            buffer = mapped(update_info.path, num_bytes)
            return lambda: buffer, lambda error: None
        if receiver is None:
            raise ValueError("no trainer is connected: call /init_weight_transfer_engine first")
        key = (update_info.session, update_info.index)
        receive: Receive
        if update_info.shared is not None:
            receive = partial(opened, update_info.shared, num_bytes, self.device)
        elif self._group is not None:
            receive = partial(received, self._group, num_bytes, self.device)
        else:
            sources = [(host, port) for host, port in update_info.sources[self._worker]]
            receive = partial(receiver.fetch, key, host_memory(num_bytes), sources)
        return receive, partial(receiver.report, key)

    @cached_property
    def _expected(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the checkpoint that the model was started from."""
        shapes = _checkpoint_shapes(_checkpoint_folder(*self._origin))
        if getattr(self.model_config.hf_config, "tie_word_embeddings", False):
            # Some checkpoints hold the tied head as well; a trainer sends it once.
            shapes.pop("lm_head.weight", None)
        return shapes


def _checkpoint_folder(model: str, revision: str | None) -> Path:
    """The folder that a model was loaded from; that of a hub id is in the local cache."""
    if Path(model).is_dir():
        return Path(model)
    return Path(snapshot_download(model, revision=revision, local_files_only=True))


def _checkpoint_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of a checkpoint by name, from the headers of its files."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    if not shapes:
        raise ValueError(f"{folder} has no *.safetensors to compare an update with")
    return shapes
