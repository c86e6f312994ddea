"""The kernels that any sampler of a model has to call, called alone: a limit of its speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from transformers import PreTrainedModel

from ludic_gym.types import Sampling
from ludic_train.engine.batch import PREFILL_TOKENS
from ludic_train.engine.cache import attend_all, attend_one
from ludic_train.engine.layers import head_of, heads_of, layout_of, read_layers
from ludic_train.engine.sampling import choose, draws_of

KERNELS = "products, attention and draws alone"


@dataclass(frozen=True)
class Requests:
    """Prompts, and the number of tokens to sample after each."""

    prompts: Sequence[Sequence[int]]
    sizes: Sequence[int]


class Kernels:
    """The kernels that any sampler of a model calls, with the matrices as the engine has them.

    They get numbers without meaning, in the amount that the requests of a load have.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        layout, self._heads = layout_of(model), heads_of(model)
        self._kernels = layout.kernels
        self._layers = read_layers(model, self._heads, layout)
        self._head = head_of(model, layout)
        self._like = model.lm_head.weight
        # The same for all layers, which is faster than one of each.
        self._cached = self._zeros(64, self._heads.num_keys, 512, self._heads.size)

    @torch.inference_mode()
    def seconds(self, requests: Requests, *, products_alone: bool = False) -> float:
        """CPU seconds of the products, or of attention and the draws of tokens too.

        Ragged prompts count as if each had their mean length, without padding.
        """
        started = time.process_time()
        number = len(requests.prompts)
        mean = sum(map(len, requests.prompts)) // number
        for start in range(0, number, PREFILL_TOKENS // mean):
            texts = min(PREFILL_TOKENS // mean, number - start)
            query = self._queries(texts, mean)
            attend = partial(attend_all, query, *self._slots(texts, mean), None)
            self._layers_of(texts * mean, None if products_alone else attend)
        for step in range(max(requests.sizes)):
            rows = sum(size > step for size in requests.sizes)
            query = self._queries(rows, 1)[:, 0]
            attend = self._attend(query, mean + step)
            # The first tokens follow from the prompts.
            if step:
                self._layers_of(rows, None if products_alone else attend)
            logits = self._head(self._zeros(rows, self._like.shape[1]))
            if not products_alone:
                draws = draws_of([Sampling()] * rows)
                choose(logits, draws, np.full(rows, 0.5), self._kernels)
        return time.process_time() - started

    def _attend(self, query: torch.Tensor, number: int) -> Callable[[], torch.Tensor]:
        """Attention of one query a row to so many tokens, as the engine computes it."""
        rows = len(query)
        if self._kernels is None:
            return partial(attend_one, query, *self._slots(rows, number), None)
        lengths = torch.full((rows,), number)
        cached = (self._cached, self._cached)
        return partial(self._kernels.attended, query, cached, torch.arange(rows), lengths)

    def _layers_of(self, rows: int, attend: Callable[[], torch.Tensor] | None) -> None:
        x = self._zeros(rows, self._like.shape[1])
        for layer in self._layers:
            layer.heads(x)
            if attend is not None:
                attend()
            # As wide as the heads together in this shape.
            layer.after_attention(x)
            layer.mlp(x)

    def _queries(self, texts: int, tokens: int) -> torch.Tensor:
        return self._zeros(texts, tokens, self._heads.num_queries, self._heads.size)

    def _slots(self, texts: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of so many tokens of each text."""
        return (self._cached[:texts, :, :number],) * 2

    def _zeros(self, *shape: int) -> torch.Tensor:
        return self._like.new_zeros(shape)
