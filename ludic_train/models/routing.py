"""Experts that the routers of a mixture choose, recorded in sampling and replayed in learning.

An engine and a trainer round differently, so that some tokens go through other experts and their
log-probs differ by more than rounding. R3 (Ma et al. 2025, arXiv:2510.11370) gives the trainer the
engine's choice; the weights of the chosen experts stay the trainer's own, with their gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ludic_train.errors import UnsupportedModel, UntrainableRollout
from ludic_train.expert_text import UNKNOWN
from ludic_train.models.modules import blocks, unwrapped

Experts = NDArray[np.int16]


def routers(model: nn.Module) -> dict[int, nn.Module]:
    """The router of each block of the model that has one, by the number of the block.

    Raises UnsupportedModel for a model without routers that are known.
    """
    inner = unwrapped(model)
    # transformers lists here by what class it finds router_logits.
    recorder = (inner._can_record_outputs or {}).get("router_logits")
    kind = getattr(recorder, "target_class", None)
    by_block = {
        number: module
        for number, block in enumerate(blocks(model))
        for module in block.modules()
        if kind is not None and isinstance(module, kind)
    }
    if not by_block:
        raise UnsupportedModel(
            f"{type(inner).__name__} (model_type {inner.config.model_type!r}) has no router whose "
            "experts could be recorded or replayed: turn router replay off"
        )
    return by_block


@contextmanager
def replayed_experts(model: nn.Module, experts: Experts) -> Iterator[None]:
    """Have the routers choose these experts inside the block, in forward and backward passes.

    experts: [B, T, layers, k], of the tokens that the passes read; UNKNOWN leaves the choice to
        the router.
    Raises UntrainableRollout for experts that the model does not have, UnsupportedModel as
    `routers`.
    """
    by_block = routers(model)
    weight = next(iter(by_block.values())).get_parameter("weight")
    layers, top_k, count = experts.shape[2], experts.shape[3], len(weight)
    # Before anything is computed: on a GPU an index out of range ends the process.
    if layers != len(blocks(model)) or experts.max(initial=UNKNOWN) >= count:
        raise UntrainableRollout(
            f"rows name experts up to {experts.max()} in {layers} layers, and the model has "
            f"{count} in {len(blocks(model))}: was another model sampled from?"
        )
    by_layer = torch.from_numpy(np.ascontiguousarray(experts)).to(weight.device)
    # Torch gathers by no index of 16 bits.
    chosen = {number: by_layer[:, :, number].reshape(-1, top_k).long() for number in by_block}

    def replace(number: int, scores: Tensor, routed: Tensor) -> Tensor:
        recorded = chosen[number]
        if recorded.shape != routed.shape:
            raise UntrainableRollout(
                f"rows name {recorded.shape[1]} experts of {recorded.shape[0]} tokens, and a "
                f"router chooses {routed.shape[1]} for {routed.shape[0]}: was another model "
                "sampled from?"
            )
        return torch.where(recorded == UNKNOWN, routed, recorded)

    with _wrapped(by_block, replace):
        yield


@contextmanager
def recorded_experts(model: nn.Module) -> Iterator[dict[int, Tensor]]:
    """The experts that each router chose last inside the block, [tokens, k] by its block's number.

    Raises UnsupportedModel as `routers`.
    """
    seen: dict[int, Tensor] = {}

    def note(number: int, scores: Tensor, indices: Tensor) -> Tensor:
        seen[number] = indices
        return indices

    with _wrapped(routers(model), note):
        yield seen


# From the number of a block, the scores [N, experts] and a router's choice [N, k], to another one.
_Choose = Callable[[int, Tensor, Tensor], Tensor]


class _Choosing(TorchFunctionMode):
    """Takes another choice for that of each `topk` inside the block, with its own scores."""

    def __init__(self, choose: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.choose, self.count = choose, 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - what the operation returns
        """Run the operation."""
        result = func(*args, **(kwargs or {}))
        if func not in (torch.topk, Tensor.topk):
            return result
        self.count += 1
        scores = args[0]
        indices = self.choose(scores, result.indices)
        # With the router's own scores of these experts, so that it gets their gradient.
        return torch.return_types.topk((scores.gather(-1, indices), indices))


@contextmanager
def _wrapped(router_by_number: Mapping[int, nn.Module], choose: _Choose) -> Iterator[None]:
    for number, router in router_by_number.items():
        # On the instance: the backward pass of activation checkpoints runs it once more.
        router.forward = partial(_routed, router.forward, partial(choose, number))
    try:
        yield
    finally:
        for router in router_by_number.values():
            del router.forward


def _routed(
    forward: Callable[..., Any], choose: Callable[[Tensor, Tensor], Tensor], *args: Tensor
) -> Any:  # noqa: ANN401 - as the router returns it
    """The output of the router with another choice. Raises UnsupportedModel."""
    with _Choosing(choose) as mode:
        output = forward(*args)
    # A router that chooses groups of experts by topk too would have these replaced as well.
    if mode.count != 1:
        raise UnsupportedModel(
            f"a router chooses its experts by {mode.count} calls of topk, and one is expected: "
            "turn router replay off"
        )
    return output
