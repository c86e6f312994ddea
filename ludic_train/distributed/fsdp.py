"""Models over several processes: FSDP2, gradients that add up, params whole again.

Wrap in this order: LoRA, `checkpoint_activations`, `compile_blocks`, `shard_model`; then make the
trainer, whose optimizer has to see the final params.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, distribute_tensor

from ludic_gym.errors import ConfigError
from ludic_train.distributed.ranks import barrier, rank, world_size
from ludic_train.models.head import SHARDED_FORWARD, forward_of_head
from ludic_train.models.modules import blocks, unwrapped

# Each unit costs the processor some 4 ms in a micro-batch, whatever its size; gathered, so many
# params take 0.13 GB of 16 bits.
UNIT_PARAMS = 2**26


def shard_model(
    model: nn.Module,
    *,
    param_dtype: torch.dtype | None = None,
    reduce_dtype: torch.dtype | None = torch.float32,
    device: str | None = None,
    offload: bool = False,
    replicas: int = 1,
) -> nn.Module:
    """The model itself, its params spread over all ranks, some blocks at a time (FSDP2).

    param_dtype: type of forward and backward, such as torch.bfloat16; the params that the
        optimizer sees keep their own type.
    reduce_dtype: type in which gradients are added up.
    device: where each block is moved when it is its turn; the model's own if left out.
    offload: params, gradients and moments stay in the memory of the host, where the optimizer
        computes too; the device holds a block at a time.
    replicas: copies of the model, each spread over neighbouring ranks, such as those of one
        machine; only gradients travel between copies (HSDP).
    All ranks must hold equal params; those on the meta device get memory and no values.
    Raises ConfigError outside torch.distributed; `process_group` starts it, for one device too.
    Raises it for replicas that do not divide the ranks, too.
    """
    if not torch.distributed.is_initialized():
        raise ConfigError(
            "shard_model needs torch.distributed: start the program with torchrun, and call this "
            "inside `with ludic_train.process_group():`"
        )
    ranks = world_size()
    if replicas < 1 or ranks % replicas:
        raise ConfigError(
            f"replicas={replicas} of a model on {ranks} ranks: they must be at least 1 and divide "
            "the ranks"
        )
    dims = {"shard": ranks} if replicas == 1 else {"replica": replicas, "shard": ranks // replicas}
    where = torch.device(device) if device else next(model.parameters()).device
    # Nothing is cast on the way in: the trainer's temperatures have to stay float32.
    policy = MixedPrecisionPolicy(
        param_dtype=param_dtype, reduce_dtype=reduce_dtype, cast_forward_inputs=False
    )
    # Only memory of a host that copies to cards is worth pinning.
    host = CPUOffloadPolicy(pin_memory=torch.cuda.is_available()) if offload else OffloadPolicy()
    causal_lm = unwrapped(model)
    # Named, because the default one is of the card where there is one, whatever the model's device.
    mesh = init_device_mesh(where.type, tuple(dims.values()), mesh_dim_names=tuple(dims))
    # Blocks first: the whole model then shards only what no block holds, and gathers one unit at a
    # time.
    for unit in [*units(model), [causal_lm]]:
        fully_shard(unit, mesh=mesh, mp_policy=policy, offload_policy=host)
    # After they were cut, so that no rank has memory for more than its shards.
    _materialize(causal_lm, torch.device("cpu") if offload else where)
    _gather_for_logprobs(causal_lm)
    for module in sharded_modules(model):
        # A loss's scale already holds the global denominator, so ranks add up and never average.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    return model


def _gather_for_logprobs(causal_lm: nn.Module) -> None:
    """Make `action_logprobs` of a sharded model gather the params that no block of it holds.

    causal_lm: the model that `fully_shard` was applied to, changed in place.
    FSDP gathers these where the model's own `forward` is called, which computes all logits.
    """

    def forward_without_views(
        *inputs: Any,  # noqa: ANN401 - those of `forward_of_head`
    ) -> tuple[Tensor, ...]:
        # FSDP hangs its backward hooks on what a forward method returns, and warns of views.
        return tuple(tensor.clone() for tensor in forward_of_head(*inputs))

    setattr(causal_lm, SHARDED_FORWARD, MethodType(forward_without_views, causal_lm))
    register_fsdp_forward_method(causal_lm, SHARDED_FORWARD)


def shard_from_rank_0(
    model: nn.Module,
    *,
    device: str,
    param_dtype: torch.dtype | None,
    offload: bool = False,
    replicas: int = 1,
    others: Container[str] = (),
    read: Callable[[str], Tensor] | None = None,
) -> None:
    """`shard_model` for a model that rank 0 holds whole, and other ranks on the meta device.

    No rank holds more of it on its device than the shards and one block; all ranks call this.
    others: names of params that get no values here, because each rank has its own source of them.
    read: on rank 0, gives a whole param that is on the meta device there too.
    """
    # Detached, because FSDP2 moves the params themselves to the device.
    params = dict(model.named_parameters(remove_duplicate=False))
    values = {name: param.detach() for name, param in params.items()} if rank() == 0 else {}
    shard_model(model, param_dtype=param_dtype, device=device, offload=offload, replicas=replicas)
    if world_size() == 1:
        return
    # Rank 0 may have copied or loaded a large model for longer than the default group waits.
    barrier()
    with torch.no_grad():
        for name, param in model.named_parameters():
            if name in others:
                continue
            value = torch.empty(param.shape, dtype=param.dtype, device=device)
            if rank() == 0:
                source = values[name]
                # Read when it is its turn, so that one param at a time is whole.
                value.copy_(read(name) if source.is_meta and read else source)
            assert isinstance(param, DTensor)
            # Rank 0 sends each rank its part.
            param.copy_(distribute_tensor(value, param.device_mesh, param.placements))
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer, 0)


def _materialize(module: nn.Module, device: torch.device) -> None:
    """Give the params and buffers on the meta device memory on `device`, without values."""
    # By the tensor, so that tied params stay tied.
    made: dict[Tensor, Tensor] = {}
    for child in module.modules():
        for tensors in (child._parameters, child._buffers):
            for name, tensor in tensors.items():
                if tensor is None or not tensor.is_meta:
                    continue
                if tensor not in made:
                    empty = torch.empty_like(tensor, device=device)
                    is_param = isinstance(tensor, nn.Parameter)
                    made[tensor] = nn.Parameter(empty, tensor.requires_grad) if is_param else empty
                tensors[name] = made[tensor]  # type: ignore[assignment]


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


def units(model: nn.Module) -> list[list[nn.Module]]:
    """The transformer blocks in groups, of which each is gathered and added up at once.

    Blocks of small models are several to a group, which costs the processor less.
    """
    groups: list[list[nn.Module]] = []
    size = 0
    for block in blocks(model):
        block_size = sum(param.numel() for param in block.parameters())
        if not groups or size + block_size > UNIT_PARAMS:
            groups.append([])
            size = 0
        groups[-1].append(block)
        size += block_size
    return groups


def sharded_modules(model: nn.Module) -> list[FSDPModule]:
    """The parts that FSDP2 shards; empty for a model that is not sharded."""
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def whole(tensor: Tensor) -> Tensor:
    """The tensor with all its shards, on every rank; all ranks must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local_part(tensor: Tensor) -> Tensor:
    """The part of the tensor that this rank has."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


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
    spread = distribute_tensor(value.to(param.device), param.device_mesh, param.placements)
    # The mesh is of cards also where params are kept in the memory of the host.
    return spread.to(param.device)
