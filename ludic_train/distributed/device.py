"""The device, the precision and the process group of this process.

bf16 computes forward and backward in bfloat16; params, gradients and moments stay float32. FSDP2
alone does that, on one device as on many, so that both compute the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore

from ludic_gym.errors import ConfigError

Precision = Literal["auto", "float32", "bf16"]
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


def resolved_device(name: str = "auto") -> str:
    """Device of this process: "cpu", or a card such as "cuda:0".

    name: "auto", "cpu", "cuda" or "cuda:N"; "cuda" is card LOCAL_RANK, which torchrun sets, or 0.
    Nothing is started on a card by this. Raises ConfigError for a card that is not there, and for
    one named card for several ranks.
    """
    if not DEVICE.fullmatch(name):
        raise ConfigError(f"device={name!r}; it is auto, cpu, cuda, or a card such as cuda:0")
    cards = torch.cuda.device_count()
    if name == "cpu" or (name == "auto" and not cards):
        return "cpu"
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    number = int(name[5:]) if ":" in name else local_rank
    if number != local_rank and "LOCAL_RANK" in os.environ:
        raise ConfigError(
            f"device={name} is one card, and this is rank {local_rank} of several on this machine: "
            "take --device cuda, which gives each rank a card of its own"
        )
    if number >= cards:
        raise ConfigError(
            f"device={name} needs card {number}, and torch finds {cards} here: start as many ranks "
            "as there are cards, or take --device cpu"
        )
    return f"cuda:{number}"


def resolved_precision(name: Precision, device: str) -> Literal["float32", "bf16"]:
    """Precision of forward and backward on a device: "auto" is bf16 on CUDA and float32 on CPU."""
    if name == "auto":
        return "float32" if device == "cpu" else "bf16"
    return name


@contextmanager
def on_device(name: str = "auto") -> Iterator[str]:
    """The device of this process, chosen before CUDA starts; float32 products in TF32 on a card.

    Raises ConfigError as `resolved_device` does.
    """
    device, before = resolved_device(name), torch.get_float32_matmul_precision()
    if device != "cpu":
        # First of all: whatever starts CUDA earlier would take memory on card 0 in every rank.
        torch.cuda.set_device(device)
        # Not on a CPU, where it would change results and save nothing.
        torch.set_float32_matmul_precision("high")
    try:
        yield device
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def process_group(name: str = "auto") -> Iterator[str]:
    """As `on_device`, with the ranks that torchrun started as torch.distributed's default group.

        with process_group("cuda") as device:
            model = shard_model(model.to(device), param_dtype=torch.bfloat16)

    Without torchrun, this process alone is the group. One that exists already is used, and left.
    """
    with on_device(name) as device:
        if dist.is_initialized():
            yield device
            return
        # Messages between ranks, and checkpoints, go over the CPU.
        backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
        if "WORLD_SIZE" in os.environ:
            dist.init_process_group(backend)
        else:
            # In memory: no port and no file for a group of one.
            dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
        try:
            yield device
        finally:
            dist.destroy_process_group()


def kept_params(
    params: Iterable[tuple[str, Tensor]], buffers: dict[str, Tensor]
) -> list[tuple[str, Tensor]]:
    """The params in a list, to be read again.

    In one process they are the trainer's own, which change in place. Of a model that is spread over
    ranks, each was put together for one reading: these are copied to the memory of the host, one at
    a time, so that the device never holds all. buffers: as of `host_copies`.
    """
    if not dist.is_initialized():
        return list(params)
    return list(host_copies(params, buffers).items())


def host_copies(
    tensors: Iterable[tuple[str, Tensor]],
    buffers: dict[str, Tensor],
    *,
    unchanged: Collection[str] = (),
) -> dict[str, Tensor]:
    """Copies of the tensors in the CPU's memory, complete when this returns.

    buffers: memory of earlier copies, by name, which is written again; new memory is added to it,
        pinned for tensors of a card.
    unchanged: names of tensors that are as they were at an earlier copy.
    """
    copies: dict[str, Tensor] = {}
    from_card = False
    for name, tensor in tensors:
        # Kept from copy to copy: pinning pages costs more than copying them.
        buffer = buffers.get(name)
        fits = buffer is not None and (buffer.shape, buffer.dtype) == (tensor.shape, tensor.dtype)
        if buffer is None or not fits:
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        if not fits or name not in unchanged:
            buffer.copy_(tensor.detach(), non_blocking=True)
        buffers[name] = copies[name] = buffer
        from_card |= tensor.is_cuda
    # The copies run in the background, and the next step changes the tensors.
    if from_card:
        torch.cuda.synchronize()
    return copies
