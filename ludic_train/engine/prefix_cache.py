"""Keys and values of texts that were read, kept for later texts that begin with the same tokens.

Keys and values of a token depend on the tokens before it and on the params alone, so they can be
used again as they are. They are kept in blocks, and a block is found by the tokens up to its end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from torch import Tensor

from ludic_train.engine.cache import KVCache

# Tokens of a block.
BLOCK = 16
# Shorter prefixes are read again: copying them would save little. They also repeat bit for bit.
LEAST = 64

Ids = tuple[int, ...]
# Blocks of one text from its first token on, each [2, layers, kv_heads, BLOCK, head_dim].
Prefix = tuple[Tensor, ...]
# The block before, by its number, and the block's own tokens.
_Key = tuple[int, Ids]
_ROOT = 0


class PrefixCache:
    """Blocks of all texts of one version of the params; the least recently used are dropped.

    max_bytes: memory of all blocks; 0 keeps none. version: as of the last `renew`.
    num_queried, num_found: tokens that were looked up so far, and those of them that were found.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.version: int | None = None
        self.num_queried = self.num_found = 0
        self._params: object = None
        # Numbers are never used twice, so what followed a block that was dropped is not found.
        self._blocks: OrderedDict[_Key, tuple[int, Tensor]] = OrderedDict()
        self._last_number = _ROOT

    @property
    def num_bytes(self) -> int:
        """Memory of all blocks, in bytes."""
        return sum(block.nbytes for _, block in self._blocks.values())

    def clear(self) -> None:
        """Drop all blocks."""
        self._blocks.clear()

    def renew(self, params: object, version: int | None) -> None:
        """Drop all blocks unless the params and their version are those of the last call.

        params: equal for equal params.
        """
        if (params, version) != (self._params, self.version):
            self.clear()
            self._params, self.version = params, version

    def find(self, ids: Ids) -> Prefix:
        """The longest kept prefix of a text, without its last token; empty below LEAST tokens."""
        if not self.max_bytes:
            return ()
        # The logits of the last token are not kept, so it is always read.
        path = self._path(ids[:-1])
        if len(path) * BLOCK < LEAST:
            path = []
        self._use(path)
        return tuple(self._blocks[key][1] for key in path)

    def count(self, num_queried: int, num_found: int) -> None:
        """Add to the counts."""
        self.num_queried += num_queried
        self.num_found += num_found

    def store(self, ids: Ids, cache: KVCache, row: int) -> None:
        """Keep the text of a row, in whole blocks; as much of its beginning as there is room for.

        ids: the row's tokens. Does nothing for a text below LEAST tokens.
        """
        if not self.max_bytes or len(ids) < LEAST:
            return
        room = self.max_bytes // (cache.token_bytes * BLOCK)
        ids = ids[: min(len(ids) // BLOCK, room) * BLOCK]
        path = self._path(ids)
        # So that what this text begins with is not dropped to make room for the rest of it.
        self._use(path)
        number = self._blocks[path[-1]][0] if path else _ROOT
        for start in range(len(path) * BLOCK, len(ids), BLOCK):
            if len(self._blocks) >= room:
                self._blocks.popitem(last=False)
            slots, key = slice(start, start + BLOCK), (number, ids[start : start + BLOCK])
            self._last_number = number = self._last_number + 1
            self._blocks[key] = (number, cache.copied(row, slots))
            path.append(key)
        self._use(path)

    def _path(self, ids: Ids) -> list[_Key]:
        """Keys of the kept blocks that the text begins with."""
        path: list[_Key] = []
        number = _ROOT
        for start in range(0, len(ids) - BLOCK + 1, BLOCK):
            key = (number, ids[start : start + BLOCK])
            if key not in self._blocks:
                break
            number = self._blocks[key][0]
            path.append(key)
        return path

    def _use(self, path: list[_Key]) -> None:
        """Make these blocks the most recently used."""
        # The last block first: it is of no use without those before, so it is dropped before them.
        for key in reversed(path):
            self._blocks.move_to_end(key)


def length_of(prefix: Prefix) -> int:
    """Tokens of a prefix."""
    return BLOCK * len(prefix)


def shared_prefixes(texts: Iterable[Ids]) -> Iterator[list[Ids]]:
    """Prefixes that some texts have in common, worth reading first, shorter ones before longer.

    Each is at least LEAST tokens longer than those in earlier lists that it begins with. Those of
    one list can be read together.
    """
    # In this order, texts with the longest common prefix are neighbours, and a prefix comes before
    # the texts that begin with it.
    ordered = sorted({text for text in texts if len(text) > LEAST})
    branches = sorted({_common(one, other) for one, other in pairwise(ordered)})
    levels: list[list[Ids]] = []
    begun: list[Ids] = []
    for branch in branches:
        while begun and branch[: len(begun[-1])] != begun[-1]:
            begun.pop()
        if len(branch) - (len(begun[-1]) if begun else 0) < LEAST:
            continue
        if len(begun) == len(levels):
            levels.append([])
        levels[len(begun)].append(branch)
        begun.append(branch)
    yield from levels


def _common(one: Ids, other: Ids) -> Ids:
    """The longest common prefix of two texts, in whole blocks."""
    size = 0
    while len(one) >= size + BLOCK and one[size : size + BLOCK] == other[size : size + BLOCK]:
        size += BLOCK
    return one[:size]
