"""Next-token logits of any causal language model of transformers, by its own forward pass.

The rows of a batch end at the same slot, and shorter ones begin with padding, which the attention
mask hides: windows, states and positions of the model's own cache then need no other care.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicIndexedLayer,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)

from ludic_train.engine.decoder import causal_lm
from ludic_train.errors import UnsupportedModel
from ludic_train.models.head import logit_finish
from ludic_train.models.modules import decoder_of

# A layer's keys and values, its states, or both.
CacheLayer: TypeAlias = CacheLayerMixin | LinearAttentionCacheLayerMixin
# Arguments by which a forward pass takes its cache, and names by which it returns it.
CACHE_NAMES = ("past_key_values", "cache_params")
KNOWN_LAYERS = (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    DynamicIndexedLayer,
    LinearAttentionLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
)
# Of a layer of the cache: tensors [rows, ..., slots, size], and lists of tensors [rows, ...].
SLOTTED, STATES = ("keys", "values", "indexer_keys"), ("conv_states", "recurrent_states")
# Names in configs, and a length for models whose texts have no end.
POSITIONS, ENDLESS = ("max_position_embeddings", "max_seq_len"), 2**20
# Nats between a row beside others and the same text alone. The mean over 16-bit logits, which are
# rounded by as much.
ROUNDING, ROUNDING_OF_16_BITS = 1e-4, 0.1


class Rows:
    """A cache of transformers as rows, which join at the end and leave anywhere.

    width: slots of each row, padding included. order: the row of the cache that each row is, so
    that rows which leave cost one copy of the others, and none where the last one leaves.
    keys: an empty tensor of the type and device that the model computes in.
    """

    def __init__(self, like: Tensor) -> None:
        self.keys = like.new_empty(0)
        self.width = 0
        self.cache: Cache | None = None
        self._size = 0
        self._order: list[int] = []

    @property
    def has_slots(self) -> bool:
        """True if some layer keeps something of each token, and not a state alone."""
        layers = [] if self.cache is None else self.cache.layers
        return any(isinstance(layer, CacheLayerMixin) for layer in layers)

    @property
    def num_bytes(self) -> int:
        """Memory of the cache, in bytes."""
        layers = [] if self.cache is None else self.cache.layers
        return sum(tensor.nbytes for layer in layers for _, _, tensor in _parts(layer))

    def spread(self, first: int, copies: Sequence[int], num_slots: int) -> None:
        """Copy row `first + i` into `copies[i]` rows; the copies of all begin at row `first`."""
        owners = zip(self._order[first:], copies, strict=True)
        self._order[first:] = [row for row, count in owners for _ in range(count)]

    def move(self, sources: Sequence[int], targets: Sequence[int], num_slots: int) -> None:
        """Copy the source rows over the target rows."""
        for source, target in zip(sources, targets, strict=True):
            self._order[target] = self._order[source]

    def sort(self, first: int, order: Sequence[int]) -> None:
        """Make row `first + order[i]` the row `first + i`."""
        rows = self._order[first:]
        self._order[first:] = [rows[i] for i in order]

    def settle(self, num_rows: int, padding: int = 0) -> None:
        """Drop all but the first rows, and the first `padding` slots of each."""
        order = self._order[:num_rows]
        if self.cache is None or not order:
            self.cache, self._size, self._order, self.width = None, 0, [], 0
            return
        self.width -= padding
        if order != list(range(self._size)):
            index = torch.tensor(order, device=self.keys.device)
            for layer in self.cache.layers:
                for holder, name, tensor in _parts(layer):
                    holder[name] = tensor.index_select(0, index)
        self._size, self._order = num_rows, list(range(num_rows))
        if padding:
            for layer in self.cache.layers:
                _set_width(layer, self.width)

    def join(self, cache: Cache, num_rows: int, width: int) -> None:
        """Add the rows of another cache, with as many slots, at the end; settled before."""
        if self.cache is None:
            self.cache, self.width = cache, width
        else:
            self.width = max(self.width, width)
            for mine, theirs in zip(self.cache.layers, cache.layers, strict=True):
                _set_width(mine, self.width)
                _set_width(theirs, self.width)
                pairs = zip(_parts(mine), _parts(theirs), strict=True)
                for (holder, name, tensor), (_, _, other) in pairs:
                    holder[name] = torch.cat((tensor, other))
        self._size += num_rows
        self._order = list(range(self._size))


def _parts(layer: CacheLayer) -> list[tuple[dict[str | int, Tensor], str | int, Tensor]]:
    """All tensors of a layer that have a row for each text: who holds them, their names, they."""
    own = layer.__dict__
    slotted = [(own, name, own[name]) for name in SLOTTED if own.get(name) is not None]
    states = [
        (held, i, tensor)
        for held in (own.get(name) or {} for name in STATES)
        for i, tensor in held.items()
        if tensor is not None
    ]
    return [*slotted, *states]


def _set_width(layer: CacheLayer, width: int) -> None:
    """Pad the rows of a layer to so many slots, or drop their first ones."""
    own = layer.__dict__
    if isinstance(layer, DynamicSlidingWindowLayer):
        layer.cumulative_length = width
        # The slots of a window are the last ones, so they are in line beside longer rows.
        width = min(width, layer.sliding_window - 1)
    for name in SLOTTED:
        tensor = own.get(name)
        if tensor is not None:
            own[name] = F.pad(tensor, (0, 0, width - tensor.shape[-2], 0))


class AnyDecoder:
    """As `Decoder`, of any model; it needs three to four times as long for a small one.

    The layers run as in `generate`, with all that they do: windows, states, hooks, adapters.
    Raises UnsupportedModel for a model whose cache is not known, or whose texts are scored in
    another way by steps with a cache, or beside others, than alone and at once; measured on two.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._causal = causal_lm(model)
        arguments = inspect.signature(type(self._causal).forward).parameters
        names = [name for name in CACHE_NAMES if name in arguments]
        if not names or "logits_to_keep" not in arguments:
            raise UnsupportedModel("its forward pass takes no cache that is known")
        self._cache_name, self._takes_positions = names[0], "position_ids" in arguments
        self.max_positions = longest_text(self._causal.config)
        self.vocab_size = len(self._causal.get_output_embeddings().weight)
        self.release()
        # Recurrent layers of some models see padding.
        self._pads = True
        found, allowed = self._difference()
        if found > allowed:
            self._pads = False
            found, allowed = self._difference()
        if not found <= allowed:
            raise UnsupportedModel(f"its steps with a cache are {found:.2g} nats per token off")
        self.release()

    def follow(self) -> bool:
        """True if the model has another device or type since the last call; rows are dropped."""
        weight, keys = self._causal.get_input_embeddings().weight, self.cache.keys
        if (weight.device, weight.dtype) == (keys.device, keys.dtype):
            return False
        self.release()
        return True

    def refresh(self) -> None:
        """Do nothing: the model reads its params in every step."""

    def release(self) -> None:
        """Drop every row and its memory."""
        self.cache = Rows(self._causal.get_input_embeddings().weight)

    def reserve(self, num_rows: int, num_slots: int) -> None:
        """Do nothing: the cache grows by itself."""

    def prefill(
        self, texts: Sequence[Sequence[int]], starts: Sequence[int], first_row: int
    ) -> Tensor:
        """Read the texts, into rows from `first_row` on: logits, [texts, V]. starts: all 0."""
        self.cache.settle(first_row)
        by_length: dict[int, list[int]] = {}
        for i, text in enumerate(texts):
            by_length.setdefault(0 if self._pads else len(text), []).append(i)
        read = [i for together in by_length.values() for i in together]
        logits = []
        for together in by_length.values():
            width = max(len(texts[i]) for i in together)
            padding = np.array([width - len(texts[i]) for i in together])
            ids = [[0] * (width - len(texts[i])) + list(texts[i]) for i in together]
            last, cache = self._forward(np.array(ids), padding, None)
            self.cache.join(cache, len(together), width)
            logits.append(last)
        back = np.argsort(read)
        self.cache.sort(first_row, back.tolist())
        return torch.cat(logits)[torch.from_numpy(back).to(logits[0].device)]

    def decode(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> Tensor:
        """Append token `ids[i]` to row i, which held `lengths[i]`: next-token logits, [rows, V]."""
        spare = self.cache.width - int(lengths.max())
        self.cache.settle(len(ids), spare)
        padding = self.cache.width - lengths
        logits, self.cache.cache = self._forward(ids[:, None], padding, self.cache.cache)
        self.cache.width += 1
        return logits

    def _forward(
        self, ids: NDArray[np.int64], padding: NDArray[np.int64], cache: Cache | None
    ) -> tuple[Tensor, Cache]:
        """Logits [rows, V] after the last of the tokens [rows, tokens]; the cache with them.

        padding: slots before each text.
        """
        device = self.cache.keys.device
        past = 0 if cache is None else self.cache.width
        slots = torch.arange(past + ids.shape[1], device=device)
        before = torch.from_numpy(padding).to(device)[:, None]
        inputs = {"input_ids": torch.from_numpy(ids).to(device), self._cache_name: cache}
        # Padding is behind a state, and without a mask attention knows that it is causal.
        if padding.any() and (cache is None or self.cache.has_slots):
            inputs["attention_mask"] = (slots >= before).long()
        if self._takes_positions:
            inputs["position_ids"] = (slots[past:] - before).clamp(min=0)
        output = self._causal(**inputs, use_cache=True, logits_to_keep=1)
        found = output.get(self._cache_name)
        if type(found) is not DynamicCache or not {*map(type, found.layers)} <= {*KNOWN_LAYERS}:
            kinds = sorted({type(each).__name__ for each in (found, *getattr(found, "layers", ()))})
            raise UnsupportedModel(f"its cache ({', '.join(kinds)}) is not known")
        return output.logits[:, -1], found

    def _difference(self) -> tuple[float, float]:
        """Nats per token between two texts that are read and decoded together, and each alone.

        And those of rounding.
        """
        texts = [list(range(3, 10)), list(range(5, 8))]
        lengths = np.array([len(text) - 1 for text in texts])
        together = [
            self.prefill([text[:-1] for text in texts], [0] * len(texts), 0),
            self.decode(np.array([text[-1] for text in texts]), lengths),
        ]
        differences = []
        for i, text in enumerate(texts):
            ids = torch.tensor([text], device=self.cache.keys.device)
            alone = self._causal(input_ids=ids, use_cache=False).logits[0, -2:]
            beside = torch.stack([logits[i] for logits in together])
            differences.append(alone.float().log_softmax(-1) - beside.float().log_softmax(-1))
        off = torch.cat(differences).abs()
        if self.cache.keys.element_size() < torch.float32.itemsize:
            return float(off.mean()), ROUNDING_OF_16_BITS
        return float(off.max()), ROUNDING


class Texts:
    """Rows without a cache: their tokens alone, and what `Rows` has of them."""

    def __init__(self, like: Tensor) -> None:
        self.keys = like.new_empty(0)
        self.rows: list[list[int]] = []
        self.num_bytes = 0

    def spread(self, first: int, copies: Sequence[int], num_slots: int) -> None:
        """Copy row `first + i` into `copies[i]` rows; the copies of all begin at row `first`."""
        owners = zip(self.rows[first:], copies, strict=True)
        self.rows[first:] = [list(row) for row, count in owners for _ in range(count)]

    def move(self, sources: Sequence[int], targets: Sequence[int], num_slots: int) -> None:
        """Put the source rows in place of the target rows."""
        for source, target in zip(sources, targets, strict=True):
            self.rows[target] = self.rows[source]


class TextDecoder:
    """As `AnyDecoder`, without a cache: each step reads whole texts, as the trainer does.

    Its time per token grows with the text.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._causal = causal_lm(model)
        self._finish = logit_finish(self._causal.config)
        self.max_positions = longest_text(self._causal.config)
        self.vocab_size = len(self._causal.get_output_embeddings().weight)
        self.release()

    def follow(self) -> bool:
        """False: tokens are of no device and no type."""
        return False

    def refresh(self) -> None:
        """Do nothing: the model reads its params in every step."""

    def release(self) -> None:
        """Drop every row."""
        self.cache = Texts(self._causal.get_input_embeddings().weight)

    def reserve(self, num_rows: int, num_slots: int) -> None:
        """Do nothing: texts are lists."""

    def prefill(
        self, texts: Sequence[Sequence[int]], starts: Sequence[int], first_row: int
    ) -> Tensor:
        """Read the texts, into rows from `first_row` on: logits, [texts, V]. starts: all 0."""
        self.cache.rows[first_row:] = map(list, texts)
        return self._logits(self.cache.rows[first_row:])

    def decode(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> Tensor:
        """Append token `ids[i]` to row i: next-token logits, [rows, V]."""
        rows = self.cache.rows[: len(ids)]
        for row, token in zip(rows, ids.tolist(), strict=True):
            row.append(token)
        self.cache.rows = rows
        return self._logits(rows)

    def _logits(self, texts: Sequence[Sequence[int]]) -> Tensor:
        width, device = max(map(len, texts)), self._causal.get_input_embeddings().weight.device
        # Padding after a text, where no token of it looks.
        padded = [[*text, *[0] * (width - len(text))] for text in texts]
        ids = torch.tensor(padded, device=device)
        hidden = decoder_of(self._causal)(input_ids=ids, use_cache=False)[0]
        last = [len(text) - 1 for text in texts]
        logits: Tensor = self._causal.get_output_embeddings()(hidden[range(len(texts)), last])
        return logits if self._finish is None else self._finish(logits)


def any_decoder(model: PreTrainedModel) -> AnyDecoder | TextDecoder:
    """A decoder with the model's own cache, where that is exact; the reason why not is logged."""
    try:
        return AnyDecoder(model)
    # An architecture may do anything with a cache that it was not made for.
    except (UnsupportedModel, ValueError, TypeError, RuntimeError, IndexError) as reason:
        inner = causal_lm(model)
        logging.getLogger(__name__).warning(
            "%s (model_type %r) is sampled without a cache, which takes long: %s",
            type(inner).__name__,
            inner.config.model_type,
            reason,
        )
        return TextDecoder(model)


def longest_text(config: PretrainedConfig) -> int:
    """Tokens of the longest sequence in which a position is encoded as in any shorter one."""
    text = config.get_text_config()
    settings = text.to_dict()
    rope = settings.get("rope_parameters") or {}
    lengths = [settings[name] for name in POSITIONS if settings.get(name)]
    # All positions are encoded in another way as soon as some text is longer.
    if rope.get("rope_type") == "longrope":
        lengths.append(rope["original_max_position_embeddings"])
    return min(lengths, default=ENDLESS)
