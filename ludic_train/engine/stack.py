"""All layers of a model in one call of the kernels, `through` of `cpu_kernels.cpp`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ludic_train.engine.cpu_kernels import Kernels, Matrix, address
from ludic_train.engine.layers import GatedMLP, Heads, Layer, Norm

_POINTER, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
# Arrays that `through` cuts from its scratch memory, and the alignment of each, in numbers.
ARRAYS, ALIGNED = 6, 64


# The structures of `cpu_kernels.cpp`, field by field.
class _Matrix(ctypes.Structure):
    _fields_ = (("panels", _POINTER), ("bias", _POINTER))


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("attention_norm", "mlp_norm", "weight", "swapped")),
        *((name, _Matrix) for name in ("heads", "after_attention", "gate_and_up", "down")),
    )


class _Shape(ctypes.Structure):
    _fields_ = (
        *((name, _INT) for name in ("layers", "width", "inner", "num_queries", "num_keys")),
        *((name, _INT) for name in ("size", "rows", "slots")),
        *((name, _FLOAT) for name in ("eps", "head_eps")),
    )


class _Tokens(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("cos", "sin", "rows", "lengths", "places")),
        ("count", _INT),
    )


@dataclass(frozen=True, slots=True)
class Stack:
    """Layers that the kernels compute one after another, each token attending to its own row.

    width: of hidden states; inner: of the MLP. eps: of the norms of hidden states.
    table: addresses of the params of the layers.
    """

    kernels: Kernels
    layers: Sequence[Layer]
    heads: Heads
    width: int
    inner: int
    eps: float
    table: ctypes.Array[_Layer]

    def through(
        self,
        number: int,
        hidden: Tensor,
        turns: tuple[Tensor, Tensor],
        cached: tuple[Tensor, Tensor],
        rows: Tensor,
        lengths: Tensor,
        places: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Hidden states after the first layers, in their place, and what is still to be added.

        number: of the layers. hidden: [tokens, width]. turns, places: as of `Kernels.stored`.
        rows, lengths: as of `Kernels.attended`.
        cached: keys and values, [layers, rows, num_keys, slots, head_size].
        """
        kernels, count = self.kernels, len(hidden)
        kernels.check(cached)
        hidden, cos, sin = (kernels.plain(each) for each in (hidden, *turns))
        shape = self._shape(number, cached[0])
        tokens = _Tokens(*(each.data_ptr() for each in (cos, sin, rows, lengths, places)), count)
        more, scratch = torch.empty_like(hidden), hidden.new_empty(self._numbers(count))
        kernels.functions["through"](
            *(ctypes.addressof(each) for each in (self.table, shape, tokens)),
            *(each.data_ptr() for each in (*cached, hidden, more, scratch)),
            torch.get_num_threads(),
        )
        return hidden, more

    def _shape(self, number: int, keys: Tensor) -> _Shape:
        """Sizes of the first layers and of a cache."""
        _, rows, _, slots, _ = keys.shape
        heads = self.heads
        return _Shape(
            layers=number,
            width=self.width,
            inner=self.inner,
            num_queries=heads.num_queries,
            num_keys=heads.num_keys,
            size=heads.size,
            rows=rows,
            slots=slots,
            eps=self.eps,
            head_eps=-1.0 if heads.eps is None else heads.eps,
        )

    def _numbers(self, count: int) -> int:
        """Numbers of the scratch memory for so many tokens."""
        heads = self.heads
        of_heads = (3 * heads.num_queries + 2 * heads.num_keys) * heads.size
        return count * (self.width + of_heads + 3 * self.inner) + ARRAYS * ALIGNED


def stack_of(layers: Sequence[Layer], heads: Heads, kernels: Kernels) -> Stack | None:
    """A `Stack` of these layers; None if a part has no kernel, or if sizes or eps differ."""
    made, sizes = [], set()
    for layer in layers:
        match layer:
            case Layer(
                before_attention=Norm() as first,
                heads=Matrix() as all_heads,
                after_attention=Matrix() as after,
                before_mlp=Norm() as second,
                mlp=GatedMLP(
                    kernels=Kernels(), gate_and_up=Matrix() as both, down=Matrix() as down
                ),
            ) if layer.weight.dtype is kernels.dtype and first.eps == second.eps:
                tensors = (first.weight, second.weight, layer.weight, layer.swapped)
                matrices = (_matrix(each) for each in (all_heads, after, both, down))
                made.append(_Layer(*(each.data_ptr() for each in tensors), *matrices))
                sizes.add((len(first.weight), both.outputs // 2, first.eps))
    if len(made) < len(layers) or len(sizes) > 1:
        return None
    return Stack(kernels, layers, heads, *sizes.pop(), (_Layer * len(made))(*made))


def _matrix(matrix: Matrix) -> _Matrix:
    return _Matrix(address(matrix.panels), address(matrix.bias))
