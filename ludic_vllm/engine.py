"""The receiving end inside a vLLM worker: params are staged, checked, and put in all at once.

Until `finish_weight_update` the model is untouched, so a wrong name or shape, a missing param or a
lost trainer leaves the server with the version it had. Written for vLLM 0.28 to 0.33.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
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

from ludic_vllm.tied import repair_tied_head
from ludic_vllm.wire import ParamInfo, broadcast, buffer_bytes, gloo_group, join_store, unpacked

SHOWN_NAMES = 4
# "type: ignore[misc]": vLLM is not installed where types are checked.


@dataclass(kw_only=True)
class InitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """Where the trainer waits. transport: "gloo", or "files" on a file system that both see."""

    transport: str = "files"
    master_address: str = ""
    master_port: int = 0
    rank_offset: int = 1
    world_size: int = 2
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if self.transport not in ("gloo", "files"):
            raise ValueError(f'transport={self.transport!r} must be "gloo" or "files"')


@dataclass(kw_only=True)
class UpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Some params. path: the safetensors file that holds them; "" receives them from the group.

    last: no more will come: if any param is missing, the session ends.
    abort: ends the session instead, and drops what was staged.
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
    """Takes params over gloo or from files, and loads them when all have come and fit."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    _group: torch.distributed.ProcessGroup | None = None
    _store: Store | None = None
    _staged: dict[str, Tensor]

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Meet the trainer; a group from before is given up."""
        self.shutdown()
        if init_info.transport == "files":
            return
        parallel = self.parallel_config
        own = parallel.data_parallel_index * parallel.world_size + parallel.rank
        self._store = join_store(
            init_info.master_address, init_info.master_port, timeout_s=init_info.timeout_s
        )
        self._group = gloo_group(
            self._store,
            rank=init_info.rank_offset + own,
            world_size=init_info.world_size,
            timeout_s=init_info.timeout_s,
        )

    def start_weight_update(self) -> None:
        """Begin with nothing staged."""
        self._staged = {}

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Stage some params. Raises ValueError for those that the model has not."""
        if update_info.abort:
            self._staged = {}
            raise ValueError("the update was given up, as asked")
        # Received before they are judged: the trainer is not left waiting in the middle.
        params = self._received(update_info)
        expected = self._expected()
        wrong = [f"{n} {list(t.shape)}" for n, t in params if expected.get(n) != tuple(t.shape)]
        if wrong:
            raise ValueError(
                f"the model has no params of {_few(wrong)}; is the trainer's model another one?"
            )
        self._staged.update(params)
        if update_info.last:
            self._require_all()

    def finish_weight_update(self) -> None:
        """Put the params in. Raises ValueError, and changes nothing, if some have not come."""
        self._require_all()
        staged, self._staged = self._staged, {}
        initialize_layerwise_reload(self.model)
        self.model.load_weights(iter(staged.items()))
        finalize_layerwise_reload(self.model, self.model_config)
        repair_tied_head(self.model)

    def shutdown(self) -> None:
        """Give up the group."""
        self._group = self._store = None

    def _require_all(self) -> None:
        missing = sorted(self._expected().keys() - self._staged.keys())
        if missing:
            raise ValueError(f"the update lacks {_few(missing)}")

    def _received(self, update_info: UpdateInfo) -> list[tuple[str, Tensor]]:
        infos = update_info.infos
        if update_info.path:
            return list(load_file(update_info.path).items())
        if self._group is None:
            raise ValueError("no trainer is connected: call /init_weight_transfer_engine first")
        buffer = torch.empty(buffer_bytes(infos), dtype=torch.uint8)
        broadcast(self._group, buffer)
        return list(unpacked(infos, buffer))

    def _expected(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the checkpoint that the model was started from."""
        if not hasattr(self, "_checkpoint"):
            self._checkpoint = _checkpoint_shapes(_checkpoint_folder(self.model_config))
            if getattr(self.model_config.hf_config, "tie_word_embeddings", False):
                # Some checkpoints hold the tied head again; no trainer sends it twice.
                self._checkpoint.pop("lm_head.weight", None)
        return self._checkpoint


def _checkpoint_folder(model_config) -> Path:  # type: ignore[no-untyped-def]  # noqa: ANN001
    if Path(model_config.model).is_dir():
        return Path(model_config.model)
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(model_config.model, revision=model_config.revision, local_files_only=True)
    )


def _checkpoint_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    if not shapes:
        raise ValueError(f"{folder} has no *.safetensors to compare an update with")
    return shapes


def _few(texts: Iterable[str] | Sequence[str]) -> str:
    known = list(texts)
    more = f" and {len(known) - SHOWN_NAMES} more" if len(known) > SHOWN_NAMES else ""
    return ", ".join(known[:SHOWN_NAMES]) + more
