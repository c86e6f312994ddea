"""Layers that carry a state or a convolution along a row: they read the items of a row one by one.

In a packed row, attention finds the beginning of each item by its position. Mamba, gated delta nets
and short convolutions do not: only some CUDA kernels take the boundaries of items, and the torch
code of transformers ignores them without an error. Here such a layer gets the items as rows of a
batch, grouped by length, while all other layers read packed rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

# Items up to this length are read together; then those up to twice as many tokens, and so on.
SHORTEST = 16


class Items(NamedTuple):
    """Where the tokens of packed rows belong.

    shape: of the rows, (B, T). groups: for items of about one length, the number in the rows of
    each token [items, longest], 0 after an item's end. back: place of each token, [B * T], among
    those of all groups one after the other.
    """

    shape: tuple[int, int]
    groups: tuple[Tensor, ...]
    back: Tensor


@contextmanager
def items_apart(decoder: nn.Module, position_ids: Tensor | None) -> Iterator[None]:
    """Have the layers with a state begin anew wherever positions do, inside the block.

    And in the backward pass of what is computed in it, where activation checkpoints run layers
    once more; it has to come before the next forward pass that has one.
    position_ids: [B, T], 0 where an item begins; None for rows of one item.
    """
    layers = [m for m in decoder.modules() if any(isinstance(c, nn.Conv1d) for c in m.children())]
    items = None if position_ids is None or not layers else items_of(position_ids)
    for layer in layers:
        own = layer.__dict__
        if "items" not in own:
            own["forward"] = partial(_one_by_one, layer, layer.forward)
        own["items"] = items
        if torch.is_grad_enabled():
            own["backward_items"] = items
    try:
        yield
    finally:
        # Whatever else calls the model, such as an engine, has other rows.
        for layer in layers:
            layer.__dict__["items"] = None


def items_of(position_ids: Tensor) -> Items:
    """The items of rows, by length.

    >>> items = items_of(torch.tensor([[0, 1, 2, 0, 1]]))
    >>> items.groups[0].tolist(), items.back.tolist()
    ([[0, 1, 2], [3, 4, 0]], [0, 1, 2, 3, 4])
    """
    flat = position_ids.flatten()
    item = (flat == 0).cumsum(0) - 1
    lengths = torch.bincount(item)
    classes = (lengths.clamp(min=SHORTEST) / SHORTEST).log2().ceil()
    groups, back, start = [], torch.empty_like(flat), 0
    for each in sorted({*classes.tolist()}):
        members = (classes == each).nonzero()[:, 0]
        rank = torch.full_like(lengths, -1)
        rank[members] = torch.arange(len(members), device=flat.device)
        tokens = (rank[item] >= 0).nonzero()[:, 0]
        longest = int(lengths[members].max())
        place = rank[item[tokens]] * longest + flat[tokens]
        group = flat.new_zeros(len(members) * longest)
        group[place] = tokens
        groups.append(group.view(len(members), longest))
        back[tokens] = start + place
        start += len(group)
    return Items((position_ids.shape[0], position_ids.shape[1]), tuple(groups), back)


def _one_by_one(
    layer: nn.Module,
    forward: Callable[..., Any],
    *args: Any,  # noqa: ANN401 - those of the architecture
    **kwargs: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """The output of a layer that reads each item of its rows alone."""
    is_backward = torch._C._current_graph_task_id() >= 0
    items: Items | None = layer.__dict__["backward_items" if is_backward else "items"]
    if items is None:
        return forward(*args, **kwargs)

    def apart(value: object, group: Tensor) -> object:
        if isinstance(value, Tensor) and value.shape[:2] == items.shape:
            return value.flatten(0, 1)[group]
        return value

    read = []
    for group in items.groups:
        own: Mapping[str, Any] = {name: apart(each, group) for name, each in kwargs.items()}
        read.append(forward(*(apart(each, group) for each in args), **own))
    # Some return a tensor and more that is none.
    hidden = [each[0] if isinstance(each, tuple) else each for each in read]
    rows = torch.cat([each.flatten(0, 1) for each in hidden])[items.back].view(*items.shape, -1)
    return (rows, *read[0][1:]) if isinstance(read[0], tuple) else rows
