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

    seen: [prompts * longest, k] by the number of the layer; of the last layer [prompts, k], since
        the decoder computes it for last tokens alone. The others are -1 there: nothing follows
        from them.
    """
    longest, some = max(map(len, prompts)), next(iter(seen.values()))
    found = np.full((len(prompts), longest, num_layers, some.shape[1]), UNKNOWN, np.int16)
    last = [len(prompt) - 1 for prompt in prompts]
    for layer, chosen in seen.items():
        own = chosen.cpu().numpy()
        if layer == num_layers - 1:
            found[range(len(prompts)), last, layer] = own
        else:
            found[:, :, layer] = own.reshape(len(prompts), longest, -1)
    for i, prompt in enumerate(prompts):
        yield found[i, : len(prompt)]
