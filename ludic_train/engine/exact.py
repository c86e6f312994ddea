"""Next-token logits by the model's own layers, equal to those of the trainer to the bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from ludic_train.engine.cache import KVCache
from ludic_train.engine.decoder import causal_lm, max_positions
from ludic_train.models.exact import KEYS, ROWS, exact_linear

# Writes the keys and values of a layer into the cache, and gives those that its queries attend to,
# [rows, kv_heads, slots, head_dim].
_Store = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]


class ExactDecoder:
    """As `Decoder`, of a model that `make_exact` changed; it needs two to four times as long.

    The layers run as in the trainer's forward pass; only keys and values come from the cache.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._causal = causal_lm(model)
        self.max_positions = max_positions(self._causal.config)
        self.vocab_size = len(self._causal.lm_head.weight)
        self.release()

    def follow(self) -> bool:
        """False: an exact model stays on the CPU, in float32."""
        return False

    def refresh(self) -> None:
        """Do nothing: the layers read their params in every step."""

    def release(self) -> None:
        """Drop every row and its memory."""
        attention = self._causal.model.layers[0].self_attn
        self.cache = KVCache(
            len(self._causal.model.layers),
            self._causal.config.num_key_value_heads,
            attention.head_dim,
            self._causal.lm_head.weight,
        )

    def reserve(self, num_rows: int, num_slots: int) -> None:
        """Make room for `num_rows` rows of `num_slots` tokens."""
        # Rows and slots of padding too: they are computed like any others.
        self.cache.reserve(num_rows + -num_rows % ROWS, num_slots + -num_slots % KEYS)

    def prefill(
        self, texts: Sequence[Sequence[int]], starts: Sequence[int], first_row: int
    ) -> Tensor:
        """Read text i from its token `starts[i]` on, into row `first_row + i`: logits, [texts, V].

        The row holds the tokens before.
        """
        unread = [text[start:] for text, start in zip(texts, starts, strict=True)]
        longest = max(map(len, unread))
        width = longest + -longest % ROWS
        ids = torch.tensor([[*text, *[0] * (width - len(text))] for text in unread])
        lengths, first = torch.tensor([len(text) for text in texts]), torch.tensor(starts)
        positions, num_slots = first[:, None] + torch.arange(ids.shape[1]), max(map(len, texts))
        row, column = (positions < lengths[:, None]).nonzero(as_tuple=True)
        places = self.cache.places(first_row + row, positions[row, column])
        rows = slice(first_row, first_row + len(texts))
        cached = self.cache.read(rows, num_slots + -num_slots % KEYS)

        def store(layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            self.cache.append(layer, key[row, :, column], value[row, :, column], places)
            return cached[layer]

        hidden = self._hidden(ids, positions, store)
        last = hidden[torch.arange(len(texts)), lengths - first - 1]
        return exact_linear(self._causal.lm_head, last)

    def decode(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> Tensor:
        """Append token `ids[i]` to row i, which held `lengths[i]`: next-token logits, [rows, V]."""
        missing = -len(ids) % ROWS
        # Rows of padding are those after the batch, which hold nothing.
        at = torch.from_numpy(np.pad(lengths, (0, missing)))
        num_slots = int(lengths.max()) + 1
        places = self.cache.places(torch.arange(len(at)), at)
        cached = self.cache.read(slice(len(at)), num_slots + -num_slots % KEYS)

        def store(layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            self.cache.append(layer, key[:, :, 0], value[:, :, 0], places)
            return cached[layer]

        hidden = self._hidden(
            torch.from_numpy(np.pad(ids, (0, missing)))[:, None], at[:, None], store
        )
        return exact_linear(self._causal.lm_head, hidden[: len(ids), 0])

    def _hidden(self, ids: Tensor, positions: Tensor, store: _Store) -> Tensor:
        """Last hidden states, [rows, tokens, D], of the tokens at these positions of their rows."""
        hidden: Tensor = self._causal.model(
            input_ids=ids, position_ids=positions, past_key_values=_Stored(store), use_cache=True
        )[0]
        return hidden


class _Stored:
    """The part of transformers' cache that a layer calls."""

    def __init__(self, store: _Store) -> None:
        self._store = store

    def update(self, key: Tensor, value: Tensor, layer: int, *_: object) -> tuple[Tensor, Tensor]:
        """Keep the keys and values of a layer; all that its queries attend to."""
        return self._store(layer, key, value)
