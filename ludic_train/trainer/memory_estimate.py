"""Memory and time of an update, measured on shapes alone, before any memory is taken.

The model is made on torch's meta device, which has shapes and no numbers. One micro-batch goes
forward and backward there, while every tensor is counted from its making to its end, and every
multiplication: no formula that would have to know the architecture.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import finalize

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from transformers import AttentionInterface, AutoConfig
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from ludic_gym.errors import ConfigError
from ludic_train.distributed.fsdp import checkpoint_activations, units
from ludic_train.errors import ModelNotFound
from ludic_train.models.adapters import has_expert_adapters
from ludic_train.models.cache import resolved
from ludic_train.models.head import action_logprobs
from ludic_train.models.load import LoRA, auto_class, with_new_lora
from ludic_train.trainer.config import Load

if TYPE_CHECKING:
    from transformers import PretrainedConfig

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
FUSED_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
ATTENTION, EXPERTS = "ludic_fused_causal", "ludic_balanced"
# Trained params are float32, whatever is computed with: smaller types round AdamW's steps away.
MASTER_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Bytes on one rank, by their use, and the multiplications and additions of an update.

    params, trained: numbers of params on all ranks together. bytes: by "params", "gradients",
        "optimizer", "activations" (with logits and what lives for a moment) and, where FSDP2 is
        needed, "gathered".
    host_bytes: the first three in the memory of the host, where they are offloaded.
    """

    params: int
    trained: int
    bytes: Mapping[str, int]
    flops: float
    host_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        """All of them together on the device, at the peak."""
        return sum(self.bytes.values())


def model_from_config(
    config: PretrainedConfig, dtype: torch.dtype, lora_rank: int = 0
) -> nn.Module:
    """The model on the meta device, with adapters of a rank if that is not 0.

    It has shapes only, and attends by a fused kernel, as on a GPU.
    Raises ConfigError for adapters of a mixture of experts.
    """
    # Registered under a name of ours, because a config chooses attention by its name.
    AttentionInterface.register(ATTENTION, _fused_attention)
    ALL_EXPERTS_FUNCTIONS.register(EXPERTS, _balanced_experts)
    with torch.device("meta"):
        model: nn.Module = auto_class(config).from_config(
            config, dtype=dtype, attn_implementation=ATTENTION, experts_implementation=EXPERTS
        )
        if lora_rank:
            model = with_new_lora(model, LoRA(rank=lora_rank))
    if has_expert_adapters(model):
        raise ConfigError(
            f"the memory of adapters of experts (lora_rank={lora_rank} for model_type "
            f"{config.model_type!r}) cannot be estimated: peft computes them on no meta device. "
            "Estimate all params, lora_rank=0, and take the optimizer and the gradients off"
        )
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


def estimate_update(
    model: nn.Module,
    load: Load,
    *,
    recompute: bool = False,
    offload: bool = False,
) -> Estimate:
    """Memory and operations of one update; the model must be on the meta device.

    load: tokens and ranks of the update.
    recompute: activations are computed again in the backward pass instead of kept; the model then
        has checkpoints in its blocks.
    offload: as of `shard_model`.
    """
    params = list(model.parameters())
    trained = [p for p in params if p.requires_grad]
    if recompute:
        checkpoint_activations(model)
    peak, flops = _update(model, load)
    shard, masters = load.world_size, MASTER_BYTES * sum(p.numel() for p in trained)
    states = {
        "params": (_bytes(params) - _bytes(trained) + masters) // shard,
        "gradients": masters // shard,
        "optimizer": 2 * masters // shard,
    }
    # All that is alive at the worst moment beside the gradients.
    sizes = {"activations": max(peak - _bytes(trained), 0)}
    if shard > 1 or offload or masters > _bytes(trained):
        # Two units, the one at work and the next, and what no block holds: whole on every rank.
        inside = [sum(_bytes(block.parameters()) for block in unit) for unit in units(model)]
        sizes["gathered"] = 2 * max(inside) + _bytes(params) - sum(inside)
    return Estimate(
        params=sum(p.numel() for p in params),
        trained=sum(p.numel() for p in trained),
        bytes=sizes if offload else states | sizes,
        host_bytes=states if offload else {},
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
    """Most bytes that live at once beside the params; flops of one micro-batch."""
    # Apart, because the counter of operations keeps tensors alive.
    with FlopCounterMode(display=False, custom_mapping=ATTENTION_FLOPS) as counter:
        _micro_batch(model, load)
    model.zero_grad()
    with LiveBytes(model.parameters()) as live:
        # A second micro-batch meets the gradients that the first has left.
        for _ in range(1 if load.tokens == load.micro_tokens else 2):
            _micro_batch(model, load)
    model.zero_grad()
    return live.peak, float(counter.get_total_flops())


def _micro_batch(model: nn.Module, load: Load) -> None:
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
                storage, name = tensor.untyped_storage(), _storage(tensor)
                self._known.add(name)
                size = storage.nbytes()
                self.now += size
                self.peak = max(self.peak, self.now)
                # Its object lives as long as the memory that it stands for.
                finalize(storage, self._forget, name, size)
        return made

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
    return FUSED(query, key, value, 0.0, True)[0].transpose(1, 2).contiguous(), None


def _forward_flops(query: torch.Size, *shapes: object, **unused: object) -> int:
    """Operations of causal attention, of queries [B, H, T, D]: two products of half T x T each."""
    batch, heads, length, width = query
    return 2 * batch * heads * length * length * width


# torch counts the kernels of cards, and not the one of CPUs, which stands for them here.
ATTENTION_FLOPS: dict[Any, Callable[..., int]] = {
    FUSED: _forward_flops,
    # The backward pass computes the scores again: five products, not two.
    FUSED_BACKWARD: lambda grad, *shapes, **unused: 5 * _forward_flops(grad) // 2,
}


def _balanced_experts(
    module: Any,  # noqa: ANN401 - a class per architecture, of one form
    hidden: Tensor,
    top_k_index: Tensor,
    top_k_weights: Tensor,
) -> Tensor:
    """Experts of [N, D] tokens as grouped kernels compute them, each with equally many tokens.

    The meta device knows no choices, and has no such kernel for float32.
    """
    experts, chosen = len(module.down_proj), top_k_index.shape[1]
    gathered = hidden.repeat_interleave(chosen, dim=0)
    filled = F.pad(gathered, (0, 0, 0, -len(gathered) % experts)).view(experts, -1, hidden.shape[1])
    matrices = [module.gate_up_proj if module.has_gate else module.up_proj, module.down_proj]
    if not module.is_transposed:
        matrices = [matrix.transpose(1, 2) for matrix in matrices]
    inner = filled @ matrices[0]
    outer = (module._apply_gate(inner) if module.has_gate else module.act_fn(inner)) @ matrices[1]
    weighted: Tensor = outer.flatten(0, 1)[: len(gathered)] * top_k_weights.reshape(-1, 1)
    return weighted.view(*top_k_index.shape, -1).sum(1).to(hidden.dtype)


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
