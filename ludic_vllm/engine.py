"""The receiving end inside a vLLM worker: params are staged, checked, and put in all at once.

Until `finish_weight_update` the model is unchanged, so a wrong name or shape, a missing param or a
lost trainer leaves the server with its old version. Written for vLLM 0.28 to 0.33.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from torch._C._distributed_c10d import Store
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from ludic_vllm.wire import (
    ParamInfo,
    broadcast,
    buffer_bytes,
    few,
    gloo_group,
    join_store,
    unpacked,
)
from ludic_vllm.worker import repair_packed

# "type: ignore[misc]": vLLM is not installed where types are checked.


@dataclass(kw_only=True)
class InitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """Address of the trainer. transport: "gloo", or "files" on a file system that both see.

    world_size: ranks of the group, the trainer's included. timeout_s: limit in seconds to join.
    Raises ValueError for another transport.
    """

    transport: str = "files"
    master_address: str = ""
    master_port: int = 0
    world_size: int = 2
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if self.transport not in ("gloo", "files"):
            raise ValueError(f'transport={self.transport!r} must be "gloo" or "files"')


@dataclass(kw_only=True)
class UpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Some params. path: the safetensors file that holds them; "" receives them from the group.

    last: True for the final part: if any param is missing, the session ends.
    abort: True ends the session instead, and drops the staged params.
    """

    names: list[str] = field(default_factory=list)
    dtype_names: list[str] = field(default_factory=list)
    shapes: list[list[int]] = field(default_factory=list)
    path: str = ""
    last: bool = False
    abort: bool = False

    @property
    def infos(self) -> tuple[ParamInfo, ...]:
        """The params in order."""
        rows = zip(self.names, self.dtype_names, self.shapes, strict=True)
        return tuple(ParamInfo(name=n, dtype=d, shape=tuple(s)) for n, d, s in rows)


class StagedEngine(WeightTransferEngine):  # type: ignore[misc]
    """Receives params over gloo or from files, and loads them when all have arrived and fit.

    vLLM makes one per worker, and calls each method on all workers. Every worker stages all params,
    on the CPU; `load_weights` takes the worker's shard of them.
    """

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    _group: torch.distributed.ProcessGroup | None = None
    _store: Store | None = None
    _staged: dict[str, Tensor]

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Connect to the trainer, in place of an earlier one.

        Raises RuntimeError if the trainer, or another worker, does not join in time.
        """
        self.shutdown()
        if init_info.transport == "files":
            return
        parallel = self.parallel_config
        # Data-parallel engines each count their workers from 0.
        own = parallel.data_parallel_index * parallel.world_size + parallel.rank
        self._store = join_store(
            init_info.master_address, init_info.master_port, timeout_s=init_info.timeout_s
        )
        self._group = gloo_group(
            self._store,
            # Rank 0 is the trainer's.
            rank=1 + own,
            world_size=init_info.world_size,
            timeout_s=init_info.timeout_s,
        )

    def start_weight_update(self) -> None:
        """Begin with nothing staged."""
        self._staged = {}

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Stage some params.

        Raises ValueError for params that the model does not have, for missing ones after the last
        part, and for `abort`, which also drops the staged params.
        """
        if update_info.abort:
            self._staged = {}
            raise ValueError("the update was aborted on request")
        # Received before they are checked, so that the trainer's broadcast ends.
        params = self._received(update_info)
        expected = self._expected
        wrong = [f"{n} {list(t.shape)}" for n, t in params if expected.get(n) != tuple(t.shape)]
        if wrong:
            raise ValueError(
                f"the model has no params of {few(wrong)}; is the trainer's model another one?"
            )
        self._staged.update(params)
        if update_info.last:
            self._require_all()

    def finish_weight_update(self) -> None:
        """Load the params. Raises ValueError, and changes nothing, if some are missing."""
        self._require_all()
        # Released before the load, so that a failed one leaves nothing for the next session.
        staged, self._staged = self._staged, {}
        # vLLM loads each layer in the layout of the checkpoint, then converts it again.
        initialize_layerwise_reload(self.model)
        self.model.load_weights(iter(staged.items()))
        finalize_layerwise_reload(self.model, self.model_config)
        repair_packed(self.model)

    def shutdown(self) -> None:
        """Drop the group."""
        self._group = self._store = None

    def _require_all(self) -> None:
        """Raises ValueError if a param of the checkpoint is not staged."""
        missing = sorted(self._expected.keys() - self._staged.keys())
        if missing:
            raise ValueError(f"the update lacks {few(missing)}")

    def _received(self, update_info: UpdateInfo) -> list[tuple[str, Tensor]]:
        """The params of an update, from its file or from the trainer's broadcast."""
        infos = update_info.infos
        if update_info.path:
            return list(load_file(update_info.path).items())
        if self._group is None:
            raise ValueError("no trainer is connected: call /init_weight_transfer_engine first")
        buffer = torch.empty(buffer_bytes(infos), dtype=torch.uint8)
        broadcast(self._group, buffer)
        return list(unpacked(infos, buffer))

    @cached_property
    def _expected(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the checkpoint that the model was started from."""
        shapes = _checkpoint_shapes(_checkpoint_folder(self.model_config))
        if getattr(self.model_config.hf_config, "tie_word_embeddings", False):
            # Some checkpoints hold the tied head as well; a trainer sends it once.
            shapes.pop("lm_head.weight", None)
        return shapes


def _checkpoint_folder(model_config) -> Path:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """The folder that the model was loaded from; that of a hub id is in the local cache."""
    if Path(model_config.model).is_dir():
        return Path(model_config.model)
    return Path(
        snapshot_download(model_config.model, revision=model_config.revision, local_files_only=True)
    )


def _checkpoint_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of a checkpoint by name, from the headers of its files."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    if not shapes:
        raise ValueError(f"{folder} has no *.safetensors to compare an update with")
    return shapes
