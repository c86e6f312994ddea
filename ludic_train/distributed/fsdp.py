"""Models over several processes: FSDP2, gradients that add up, params whole again.

Wrap in this order: LoRA, `checkpoint_activations`, `compile_blocks`, `shard_model`; then make the
trainer, whose optimizer has to see the final params.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from ludic_gym.errors import ConfigError
from ludic_train.models.logprobs import gather_for_logprobs, unwrapped


def shard_model(
    model: nn.Module,
    *,
    param_dtype: torch.dtype | None = None,
    reduce_dtype: torch.dtype | None = torch.float32,
) -> nn.Module:
    """The model itself, its params spread over all ranks, a transformer block at a time (FSDP2).

    param_dtype: type of forward and backward, such as torch.bfloat16; the params that the
        optimizer sees keep their own type.
    reduce_dtype: type in which gradients are added up.
    All ranks must hold equal params. Raises ConfigError outside torch.distributed.
    """
    if not torch.distributed.is_initialized():
        raise ConfigError(
            "shard_model needs torch.distributed: start the program with torchrun and call "
            "torch.distributed.init_process_group() first"
        )
    # Nothing is cast on the way in: the trainer's temperatures have to stay float32.
    policy = MixedPrecisionPolicy(
        param_dtype=param_dtype, reduce_dtype=reduce_dtype, cast_forward_inputs=False
    )
    causal_lm = unwrapped(model)
    # Blocks first: the whole model then shards only what no block holds, and gathers one block at a
    # time.
    for module in [*blocks(model), causal_lm]:
        fully_shard(module, mp_policy=policy)
    gather_for_logprobs(causal_lm)
    for module in sharded_modules(model):
        # A loss's scale already holds the global denominator, so ranks add up and never average.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    return model


def checkpoint_activations(model: nn.Module) -> None:
    """Keep only the inputs of each block for the backward pass, which computes the rest again."""
    causal_lm = unwrapped(model)
    causal_lm.gradient_checkpointing_enable({"use_reentrant": False})
    # With LoRA nothing before the adapters needs a gradient, and a block without one is skipped.
    causal_lm.enable_input_require_grads()


def compile_blocks(model: nn.Module) -> None:
    """Compile each block in place with torch.compile, for lengths that change from call to call."""
    for block in blocks(model):
        block.compile(dynamic=True)


def blocks(model: nn.Module) -> list[nn.Module]:
    """The transformer blocks. Raises ConfigError for a model without a list of them."""
    decoder = unwrapped(model).get_decoder()
    lists = [child for child in decoder.children() if isinstance(child, nn.ModuleList)]
    if len(lists) != 1:
        raise ConfigError(
            f"{type(decoder).__name__} has {len(lists)} lists of modules where one list of "
            "transformer blocks is expected; this architecture cannot be sharded by block"
        )
    return list(lists[0])


def sharded_modules(model: nn.Module) -> list[FSDPModule]:
    """The parts that FSDP2 shards; empty for a model that is not sharded."""
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def sync_gradients(model: nn.Module, now: bool) -> None:
    """Make the next backward pass add gradients up over ranks, or keep them whole here."""
    for module in sharded_modules(model):
        module.set_requires_gradient_sync(now, recurse=False)


def whole(tensor: Tensor) -> Tensor:
    """The tensor with all its shards, on every rank; all ranks must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_params(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names and whole params, one at a time; all ranks must go through to the end."""
    for name, param in model.named_parameters():
        yield name, whole(param.detach())


def like(param: Tensor, value: Tensor) -> Tensor:
    """A whole tensor, which all ranks have, cut and placed as `param` is; or one that is so."""
    if isinstance(value, DTensor):
        return value
    if not isinstance(param, DTensor):
        return value.to(param.device)
    return distribute_tensor(value.to(param.device), param.device_mesh, param.placements)
