"""Experts that the decoder's passes went through, as arrays of the rows of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ludic_train.expert_text import UNKNOWN

Experts = NDArray[np.int16]


def experts_of_rows(seen: Mapping[int, Tensor], num_layers: int) -> Experts:
    """Experts of one token per row, [rows, layers, k]; -1 in layers without experts.

    seen: [rows, k] by the number of the layer.
    """
    some = next(iter(seen.values()))
    found = np.full((len(some), num_layers, some.shape[1]), UNKNOWN, np.int16)
    for layer, chosen in seen.items():
        found[:, layer] = chosen.cpu().numpy()
    return found


def experts_of_prompts(
    seen: Mapping[int, Tensor], num_layers: int, prompts: Sequence[Sequence[int]]
) -> Iterator[Experts]:
    """Experts of each prompt's tokens, [tokens, layers, k].

    seen: [tokens of all prompts, k] by the number of the layer; of the last layer [prompts, k],
        since the decoder computes it for last tokens alone. The others are -1 there: nothing
        follows from them.
    """
    ends, some = np.cumsum([len(prompt) for prompt in prompts]), next(iter(seen.values()))
    found = np.full((ends[-1], num_layers, some.shape[1]), UNKNOWN, np.int16)
    for layer, chosen in seen.items():
        where = ends - 1 if layer == num_layers - 1 else slice(None)
        found[where, layer] = chosen.cpu().numpy()
    yield from np.split(found, ends[:-1])
