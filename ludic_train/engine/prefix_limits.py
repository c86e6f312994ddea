"""Memory of the prefix cache, and the params that it holds for."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ludic_train.models.modules import is_adapted_layer

# Equal marks, equal params.
Mark = tuple[object, ...]
# Of the free memory, the share that a cache takes by default, and at most.
SHARE, MOST_BYTES = 1 / 8, 2**31
MEMORY = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")


def default_bytes(device: torch.device) -> int:
    """Memory for a prefix cache on this device, from what is free now, in bytes."""
    if device.type == "cuda":
        return _share(torch.cuda.mem_get_info(device)[0])
    return _share(free_memory())


def free_memory(memory: Path = MEMORY, group: Path = GROUP) -> int:
    """Free memory, of the machine or of this process's control group if that is less, in bytes.

    memory, group: files of Linux; on other systems, a quarter of the machine's memory counts as
    free.
    """
    if not memory.is_file():
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
    lines = dict(line.split(":") for line in memory.read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    limit, used = group / "memory.max", group / "memory.current"
    # In a container the machine's free memory may not be this process's to take.
    if limit.is_file() and used.is_file() and (most := limit.read_text().strip()) != "max":
        free = min(free, max(0, int(most) - int(used.read_text())))
    return free


def _share(free: int) -> int:
    return min(MOST_BYTES, int(free * SHARE))


def params_mark(model: nn.Module) -> Mark:
    """A value that changes whenever a param does, its place in memory, or the adapters in use.

    It reads all params once, as a step of a single row does: torch's own counters of changes do not
    see writes through `param.data`.
    """
    params = [each.detach() for each in model.parameters()]
    # One transfer for all of them where they are on a GPU.
    sums = torch.stack([_checksum(param) for param in params]).tolist()
    counters = [0 if param.is_inference() else param._version for param in params]
    # A captured step reads the memory that params had, which is free once they have other memory.
    places = [param.data_ptr() for param in params]
    adapters = [
        (module.disable_adapters, tuple(module.active_adapters), tuple(module.merged_adapters))
        for module in model.modules()
        if is_adapted_layer(module)
    ]
    return (*sums, *counters, *places, *adapters)


def _checksum(param: Tensor) -> Tensor:
    """Sum of the param's bits as 64-bit integers, which wraps around: [], exact in any order."""
    flat = param.reshape(-1)
    per_word = 8 // flat.element_size()
    # A view needs whole and aligned words.
    if flat.numel() % per_word or flat.storage_offset() % per_word:
        flat = F.pad(flat, (0, -flat.numel() % per_word or per_word))
    return flat.view(torch.int64).sum()
