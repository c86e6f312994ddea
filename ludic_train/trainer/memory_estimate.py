"""Memory and time of an update, measured on shapes alone, before any memory is taken.

The model is made on torch's meta device, which has shapes and no numbers. One micro-batch goes
forward and backward there, while every tensor is counted from its making to its end, and every
multiplication: no formula that would have to know the architecture.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import finalize

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

from ludic_train.distributed.fsdp import blocks, checkpoint_activations
from ludic_train.errors import ModelNotFound
from ludic_train.models.cache import resolved
from ludic_train.models.logprobs import action_logprobs
from ludic_train.trainer.config import Load

if TYPE_CHECKING:
    from transformers import PretrainedConfig

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ATTENTION = "ludic_fused_causal"
# AdamW keeps two moments of each trained param.
MOMENTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Bytes on one rank, by their use, and the multiplications and additions of an update.

    params, trained: numbers of params on all ranks together. bytes: by "params", "gradients",
        "optimizer", "activations" (with logits and what lives for a moment) and, with several
        ranks, "gathered".
    """

    params: int
    trained: int
    bytes: Mapping[str, int]
    flops: float

    @property
    def total_bytes(self) -> int:
        """All of them together, at the peak."""
        return sum(self.bytes.values())


def estimate_of(
    name: str, load: Load, *, dtype: str, lora_rank: int = 0, recompute: bool = False
) -> Estimate:
    """The estimate for a model folder or hub id; as `estimate_update`.

    dtype: a key of DTYPES. lora_rank: of adapters; 0 trains all params.
    Raises ModelNotFound where there is no config.
    """
    model = model_from_config(read_config(name), DTYPES[dtype], lora_rank)
    return estimate_update(model, load, recompute=recompute)


def model_from_config(
    config: PretrainedConfig, dtype: torch.dtype, lora_rank: int = 0
) -> nn.Module:
    """The model on the meta device, with adapters of a rank if that is not 0.

    It has shapes only, and attends by a fused kernel, as on a GPU.
    """
    # Registered under a name of ours, because a config chooses attention by its name.
    AttentionInterface.register(ATTENTION, _fused_attention)
    with torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=ATTENTION
        )
        if lora_rank:
            adapters = LoraConfig(r=lora_rank, target_modules="all-linear", task_type="CAUSAL_LM")
            model = get_peft_model(model, adapters)
    return model.train()


def read_config(name: str) -> PretrainedConfig:
    """The config of a model folder, a folder with config.json alone, a hub id or `ludic-small`.

    Raises ModelNotFound where there is none, or the hub cannot be reached.
    """
    name = str(resolved(name))
    if Path(name).exists() or name.count("/") != 1:
        where = Path(name) / "config.json"
        if not where.is_file():
            raise ModelNotFound(f"there is no {where}; give a model folder or a hub id")
    try:
        return AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelNotFound(f"no config of a model at {name!r}: {reason}") from error


def estimate_update(model: nn.Module, load: Load, *, recompute: bool = False) -> Estimate:
    """Memory and operations of one update; the model must be on the meta device.

    load: tokens and ranks of the update.
    recompute: activations are computed again in the backward pass instead of kept; the model then
        has checkpoints in its blocks.
    """
    params = list(model.parameters())
    trained = [p for p in params if p.requires_grad]
    if recompute:
        checkpoint_activations(model)
    peak, flops = _update(model, load)
    shard, gradients = load.world_size, _bytes(trained)
    sizes = {
        "params": _bytes(params) // shard,
        "gradients": gradients // shard,
        "optimizer": MOMENTS * gradients // shard,
        # All that is alive at the worst moment beside the gradients.
        "activations": max(peak - gradients, 0),
    }
    if shard > 1:
        sizes["gathered"] = _gathered_bytes(model)
    return Estimate(
        params=sum(p.numel() for p in params),
        trained=sum(p.numel() for p in trained),
        bytes=sizes,
        # Micro-batches cost the same, and optimizer steps nothing beside them.
        flops=flops * load.tokens / load.micro_tokens / shard,
    )


def measured_flops(seconds: float = 0.3) -> float:
    """Multiplications and additions per second of large float32 matrix products on this CPU.

    seconds: time of the processor to measure for, on each of torch's threads.
    """
    a = torch.randn(1024, 1024)
    threads = torch.get_num_threads()
    # Not by the wall clock, which counts what other programs take.
    done, started = 0, time.process_time()
    while (spent := (time.process_time() - started) / threads) < seconds:
        a @ a
        done += 1
    return done * 2 * 1024**3 / spent


def _update(model: nn.Module, load: Load) -> tuple[int, float]:
    """Most bytes that live at once beside the params, and flops of one micro-batch."""
    # Apart, because the counter of operations keeps tensors alive.
    with FlopCounterMode(display=False) as counter:
        _micro_batch(model, load)
    model.zero_grad()
    with LiveBytes(model.parameters()) as live:
        # A second micro-batch meets the gradients that the first has left.
        for _ in range(1 if load.tokens == load.micro_tokens else 2):
            _micro_batch(model, load)
    model.zero_grad()
    return live.peak, float(counter.get_total_flops())


def _micro_batch(model: nn.Module, load: Load) -> None:
    """Forward and backward pass of one micro-batch."""
    rows = load.micro_tokens // load.row_tokens
    sampled = max(int(load.micro_tokens * load.sampled), 1)
    ids = torch.zeros(rows, load.row_tokens, dtype=torch.int64, device="meta")
    at = torch.ones(sampled, dtype=torch.int64, device="meta")
    out = action_logprobs(model, ids, at, at, torch.ones(sampled, device="meta"))
    # Entropies are reported, and few losses learn from them.
    out.logprobs.sum().backward()  # type: ignore[no-untyped-call]


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that are alive, from their making to their end.

    params: counted elsewhere; neither they nor views of them are.
    peak: the most bytes at a time so far.
    """

    def __init__(self, params: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known = {_storage(param) for param in params}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - what the operation returns
        """Run the operation, and count what it makes."""
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor) and _storage(tensor) not in self._known:
                self._count(tensor)
        return made

    def _count(self, tensor: Tensor) -> None:
        storage, name = tensor.untyped_storage(), _storage(tensor)
        self._known.add(name)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        # Its object lives as long as the memory that it stands for.
        finalize(storage, self._forget, name, size)

    def _forget(self, name: int, size: int) -> None:
        self._known.discard(name)
        self.now -= size


def _fused_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **unused: object,
) -> tuple[Tensor, None]:
    """Causal attention that never holds all scores, as the kernels of CPU and GPU compute it.

    On the meta device torch would choose the kernel that does hold them.
    """
    groups = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(groups, dim=1) for t in (key, value))
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return fused(query, key, value, 0.0, True)[0].transpose(1, 2).contiguous(), None


def _storage(tensor: Tensor) -> int:
    """Identity of the memory that a tensor is a view of."""
    return int(tensor.untyped_storage()._cdata)


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Memory of the tensors together."""
    return sum(tensor.nbytes for tensor in tensors)


def _gathered_bytes(model: nn.Module) -> int:
    """Two blocks, the one at work and the next, and what no block holds: whole on every rank."""
    inside = [_bytes(block.parameters()) for block in blocks(model)]
    return 2 * max(inside) + _bytes(model.parameters()) - sum(inside)
