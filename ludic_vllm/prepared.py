"""The next params of a worker, made ready in the host's memory while the server samples.

A twin of the model has the same layers, and params of its own: the worker's shard alone, in the
layout in which vLLM loads a checkpoint. The model's own loaders fill it, and on a CPU the matrices
are packed as vLLM packs them. A swap then copies each param to the card in place, or on a CPU
exchanges memory: no loader runs during the pause, and no worker holds params of other shards. The
twin keeps its memory, since pinning takes long, and the kernel clears what is new.
"""

from __future__ import annotations

import mmap
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from vllm.model_executor.layers.attention import is_deferred_attention_layer
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.platforms import current_platform

# Methods that leave params as they were loaded, but for packing on a CPU.
PLAIN = (type(None), UnquantizedLinearMethod, UnquantizedEmbeddingMethod)
# Bytes from which memory is taken in huge pages; a multiple of their size, 2 MiB on most machines.
HUGE = 2**22


def reason_not_to_prepare(model: nn.Module) -> str:
    """The layer that vLLM alone can convert; "" if the model can be prepared."""
    for name, layer in model.named_modules():
        method = getattr(layer, "quant_method", None)
        if type(method) not in PLAIN:
            return f"{name} is converted by {type(method).__name__}"
        if isinstance(layer, _BatchNorm):
            return f"{name} has statistics beside its params"
        for param, loaded in get_layerwise_info(layer).restore_metadata[0].items():
            live = layer._parameters.get(param)
            is_packed = current_platform.is_cpu() and isinstance(method, PLAIN[1:])
            if is_packed and loaded.ndim > 2:
                return f"{name}.{param} has {loaded.ndim} axes"
            if not is_packed and (live is None or live.shape != loaded.shape):
                return f"{name}.{param} has another shape than in the checkpoint"
    return ""


class PreparedParams:
    """The twin of a model, which one session at a time fills.

    dtype: of the model, for layers that compute something from their params.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self._model, self._dtype = model, dtype
        self._on_cpu = bool(current_platform.is_cpu())
        self._twins: dict[nn.Module, nn.Module] = {}
        # True once the loaders have filled the twin: they do the same in each session.
        self._is_whole = False
        # The matrix of a layer of the twin, in whose place packing leaves an empty one.
        self._unpacked: dict[nn.Module, nn.Parameter] = {}
        self._session = 0
        # Held while params are loaded: an earlier session may still have a thread at work.
        self._lock = threading.Lock()

    def begin(self) -> int:
        """Number of a new session, which ends the one before."""
        self._session += 1
        return self._session

    @torch.no_grad()
    def load(self, session: int, params: Mapping[str, Tensor]) -> bool:
        """Load all params by the model's own loaders; False if the session has ended meanwhile."""
        with self._lock:
            if not self._twins:
                self._twins = _twins(self._model, pin=not self._on_cpu)
            for twin, weight in self._unpacked.items():
                twin._parameters["weight"] = weight
            running = (pair for pair in params.items() if session == self._session)
            self._twins[self._model].load_weights(running)  # type: ignore[operator]
            if session != self._session:
                return False
            if not self._is_whole:
                self._require_all()
                self._is_whole = True
            if self._on_cpu:
                self._pack()
            return True

    def swap(self) -> None:
        """Put the prepared params into the model. Whole sessions alone may be put in."""
        # Tied params are one, and would be exchanged twice.
        done: set[int] = set()
        for live, twin in self._twins.items():
            for name, param in twin._parameters.items():
                target = live._parameters[name]
                if param is None or target is None or id(target) in done:
                    continue
                done.add(id(target))
                if self._on_cpu:
                    target.data, param.data = param.data, target.data
                else:
                    # In place, because CUDA graphs hold the address.
                    target.data.copy_(param.data, non_blocking=True)
            if "cpu_linear" in twin.__dict__:
                live.cpu_linear = twin.cpu_linear
        for layer in self._model.modules():
            if is_deferred_attention_layer(layer):
                layer.process_weights_after_loading(self._dtype)  # type: ignore[operator]
        if not self._on_cpu:
            torch.accelerator.synchronize()

    def _require_all(self) -> None:
        """Raise ValueError for a param that the loaders have left out: memory begins as NaN."""
        for layer, twin in self._twins.items():
            for name, param in twin._parameters.items():
                if param is not None and not bool(param.data.sum(dtype=torch.float32).isfinite()):
                    bad = param.numel() - int(param.data.isfinite().sum())
                    if bad:
                        raise ValueError(f"{type(layer).__name__}.{name} has {bad} values missing")

    def _pack(self) -> None:
        """Pack the matrices of the twin, as vLLM does when it loads a model on a CPU."""
        for twin in self._twins.values():
            method = getattr(twin, "quant_method", None)
            if isinstance(method, PLAIN[1:]) and "weight" in twin._parameters:
                weight = twin._parameters["weight"]
                method.process_weights_after_loading(twin)
                if weight is not None and twin._parameters["weight"] is not weight:
                    if _captures(twin.__dict__.get("cpu_linear"), weight):
                        # On some processors vLLM computes from the matrix itself.
                        weight.data = torch.empty_like(weight.data)
                    self._unpacked[twin] = weight


def _twins(model: nn.Module, *, pin: bool) -> dict[nn.Module, nn.Module]:
    """A twin of each layer, by layer. pin: use memory from which a card can copy."""
    twins: dict[nn.Module, nn.Module] = {}
    made: dict[int, Tensor] = {}
    _twin_of(model, twins, made, pin)
    return twins


def _twin_of(
    layer: nn.Module, twins: dict[nn.Module, nn.Module], made: dict[int, Tensor], pin: bool
) -> nn.Module:
    """The twin of a layer, with those below it. made: params so far, by that of the model."""
    if layer in twins:
        return twins[layer]
    # Not a deep copy, which would copy caches, and register attention layers once more.
    twin: nn.Module = object.__new__(type(layer))
    twin.__dict__.update(layer.__dict__)
    twin.__dict__.pop("cpu_linear", None)
    twins[layer] = twin
    params: dict[str, Tensor | None] = {}
    for name, live, loaded in _formats(layer):
        if live is None and loaded is None:
            params[name] = None
            continue
        # Tied params are one.
        key = id(live) if live is not None else id(loaded)
        if key not in made:
            made[key] = _empty(loaded if loaded is not None else live, twin, pin)
        params[name] = made[key]
    twin.__dict__["_parameters"] = params
    twin.__dict__["_modules"] = {
        name: None if below is None else _twin_of(below, twins, made, pin)
        for name, below in layer._modules.items()
    }
    return twin


def _formats(layer: nn.Module) -> Iterator[tuple[str, Tensor | None, Tensor | None]]:
    """Name of each param of a layer, the param, and its format as it is loaded, if vLLM knows it.

    Some, such as biases, are loaded as they are.
    """
    loaded = get_layerwise_info(layer).restore_metadata[0]
    for name in {**layer._parameters, **loaded}:
        yield name, layer._parameters.get(name), loaded.get(name)


def _empty(like: Any, twin: nn.Module, pin: bool) -> Tensor:  # noqa: ANN401 - classes of vLLM
    """Memory of the host in the format of a param, with its loader bound to the twin."""
    size, stride, dtype = like.size(), like.stride(), like.dtype
    if pin:
        tensor = torch.empty_strided(size, stride, dtype=dtype, pin_memory=True)
    else:
        # The elements that strides reach.
        span = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        memory = _host_memory(span * dtype.itemsize if size.numel() else 0)
        tensor = memory.view(dtype).as_strided(size, stride)
    if tensor.is_floating_point():
        tensor.fill_(torch.nan)
    # As vLLM makes params from formats: the class and the attributes choose what is loaded.
    tensor.__class__ = like.__class__
    tensor.__dict__ = {name: _bound(value, twin) for name, value in like.__dict__.items()}
    return tensor


def _bound(value: Any, twin: nn.Module) -> Any:  # noqa: ANN401 - any attribute
    """An attribute of a param, loaders as methods of the twin."""
    # An earlier reload by vLLM leaves loaders that wait for the model's own layers.
    while getattr(value, "__name__", "") == "online_process_loader":
        value = value.__wrapped__
    return value.__func__.__get__(twin) if isinstance(value, MethodType) else value


def _host_memory(size: int) -> Tensor:
    """New memory of the host, uint8 [size], in huge pages where the system has them."""
    # The kernel clears new memory page by page when it is first written. With pages of 4 KiB that
    # takes several times as long as the copy that fills them.
    if sys.platform != "linux" or size < HUGE:
        return torch.empty(size, dtype=torch.uint8)
    # Linux aligns memory of whole huge pages alone.
    area = mmap.mmap(-1, -(-size // HUGE) * HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # A kernel that was built without them refuses.
    with suppress(OSError):
        area.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(area, dtype=torch.uint8)[:size]


def _captures(function: object, tensor: Tensor) -> bool:
    """True if a closure holds a tensor in the same memory."""
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    memory = tensor.untyped_storage().data_ptr()
    return any(isinstance(c, Tensor) and c.untyped_storage().data_ptr() == memory for c in cells)
