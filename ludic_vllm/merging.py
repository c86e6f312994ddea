"""Params of a checkpoint with the adapters that a trainer sends alone. It needs torch alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from ludic_vllm.wire import checksum, few

A, B = ".lora_A", ".lora_B"
# Bytes of params that are loaded at once.
BATCH = 2**28
# The params of a checkpoint by name, one at a time.
Read = Callable[[], Iterable[tuple[str, Tensor]]]


def base_sum(weight: Tensor) -> int:
    """A checksum of a param that does not depend on the type in which it is held."""
    return checksum(weight.detach().float().contiguous().view(-1).view(torch.uint8))


def different_bases(sums: Mapping[str, int], read: Read) -> list[str]:
    """Names of the params that are not in a checkpoint, or have another `base_sum` there."""
    equal = {name for name, weight in read() if name in sums and base_sum(weight) == sums[name]}
    return sorted(sums.keys() - equal)


def adapter_shapes(
    ranks: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the matrices of these params.

    ranks: by name of the param. shapes: of the checkpoint.
    Raises ValueError for params that the checkpoint does not have as matrices.
    """
    if wrong := [name for name in ranks if len(shapes.get(name, ())) != 2]:
        raise ValueError(f"the model has no matrices {few(wrong)}, which adapters were sent for")
    found: dict[str, tuple[int, ...]] = {}
    for name, rank in ranks.items():
        outer, inner = shapes[name]
        found |= {name + A: (rank, inner), name + B: (outer, rank)}
    return found


def merged(weight: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """W + B A in the type of W, added up in float32."""
    return (weight.float() + b.float() @ a.float()).to(weight.dtype)


class Merging:
    """Loads a checkpoint with adapters merged, once all of them have arrived.

    load: takes some params, and True for the last of them.
    """

    def __init__(self, read: Read, load: Callable[[Mapping[str, Tensor], bool], None]) -> None:
        self._read, self._load = read, load
        self._matrices: dict[str, Tensor] = {}

    def take(self, matrices: Mapping[str, Tensor], is_last: bool) -> None:
        """Keep some matrices; merge and load all params at the last."""
        # Copies, because the buffer that they are views of is used again.
        self._matrices |= {name: tensor.clone() for name, tensor in matrices.items()}
        if not is_last:
            return
        batch: dict[str, Tensor] = {}
        for name, weight in self._read():
            # Before the next one is added, because the last batch has to be known as such.
            if sum(held.nbytes for held in batch.values()) >= BATCH:
                self._load(batch, False)
                batch = {}
            if name + A in self._matrices:
                weight = merged(weight, self._matrices[name + A], self._matrices[name + B])
            batch[name] = weight
        self._load(batch, True)
