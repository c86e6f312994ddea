"""Blocks of the prefix cache, by hand and as properties; no model is needed."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from ludic_train.engine.cache import BLOCK, LEAST, KVCache, PrefixCache, common_prefix, length_of

# One layer of one head of two numbers: keys and values take 2 * 2 * 4 bytes a token.
BLOCK_BYTES = 16 * BLOCK


def text(letters):
    """A block of equal tokens for each letter."""
    return tuple(ord(letter) for letter in letters for _ in range(BLOCK))


def rows_of(*texts):
    """A cache whose keys are the tokens themselves, and whose values are their negatives."""
    cache = KVCache(1, 1, 2, like=torch.zeros(0))
    cache.reserve(len(texts), max(map(len, texts)))
    for row, ids in enumerate(texts):
        cache.keys[0, row, 0, : len(ids)] = torch.tensor(ids)[:, None].float()
    cache.values = -cache.keys
    return cache


def stored(prefixes, *texts):
    cache = rows_of(*texts)
    for row, ids in enumerate(texts):
        prefixes.store(ids, cache, row)


def found(prefixes, letters):
    """Blocks that are found of a text that goes on after these."""
    prefix = prefixes.find((*text(letters), 0))
    return "".join(chr(int(block[0, 0, 0, 0, 0])) for block in prefix)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=5),
    st.integers(0, 2),
)
def test_texts_are_spread_over_rows_of_their_own(texts, first):
    copies, sizes = zip(*texts, strict=True)
    read = [(i + 1,) * size for i, size in enumerate(sizes)]
    cache = rows_of(*[(9,)] * first, *read, *[()] * (sum(copies) - len(read)))
    cache.spread(first, copies, max(sizes))
    owners = [ids for ids, number in zip(read, copies, strict=True) for _ in range(number)]
    for row, ids in enumerate(owners, first):
        assert cache.keys[0, row, 0, : len(ids), 0].tolist() == list(ids)
        assert torch.equal(cache.values[0, row, 0, : len(ids)], -cache.keys[0, row, 0, : len(ids)])
    assert cache.keys[0, :first, 0, 0, 0].tolist() == [9] * first


def test_the_longest_kept_prefix_is_found_with_its_keys_and_values():
    prefixes = PrefixCache(10**6)
    stored(prefixes, text("abcde"), text("abcdx"))
    prefix = prefixes.find((*text("abcdxy"), 0))
    cache = rows_of((0,) * 6 * BLOCK)
    cache.put(0, prefix)
    expected = torch.tensor([*text("abcdx"), *[0] * BLOCK]).float()
    assert torch.equal(cache.keys[0, 0, 0, : 6 * BLOCK, 0], expected)
    assert torch.equal(cache.values, -cache.keys)
    assert found(prefixes, "abcdy") == "abcd"
    assert found(prefixes, "bcdex") == ""


def test_the_last_token_of_a_text_is_always_left_to_read():
    prefixes = PrefixCache(10**6)
    stored(prefixes, text("abcde"))
    assert length_of(prefixes.find(text("abcde"))) == 4 * BLOCK
    assert length_of(prefixes.find((*text("abcde"), 0))) == 5 * BLOCK


def test_prefixes_below_the_least_length_are_neither_kept_nor_found():
    prefixes = PrefixCache(10**6)
    stored(prefixes, text("abcd")[: LEAST - 1])
    assert prefixes.num_bytes == 0
    stored(prefixes, text("abcd"))
    assert (found(prefixes, "abcx"), found(prefixes, "abcd")) == ("", "abcd")


def test_the_least_recently_used_text_is_dropped_from_its_end():
    prefixes = PrefixCache(11 * BLOCK_BYTES + 1)
    stored(prefixes, text("aaaaa"), text("bbbbb"))
    assert found(prefixes, "aaaaa") == "aaaaa"
    # Room for 11 blocks: four of the twelve's new ones take the places of b's last three.
    stored(prefixes, text("cccc"))
    assert found(prefixes, "aaaaa") == "aaaaa"
    assert found(prefixes, "cccc") == "cccc"
    assert found(prefixes, "bbbbb") == ""
    assert prefixes.num_bytes == 11 * BLOCK_BYTES


def test_a_text_larger_than_the_memory_keeps_its_beginning():
    prefixes = PrefixCache(5 * BLOCK_BYTES)
    stored(prefixes, text("abcdefgh"))
    assert found(prefixes, "abcdefgh") == "abcde"


@given(st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=20), st.integers(0, 12))
def test_what_is_found_is_what_was_stored_within_the_memory(texts, room):
    prefixes = PrefixCache(room * BLOCK_BYTES)
    for letters in texts:
        stored(prefixes, text(letters))
        assert prefixes.num_bytes <= room * BLOCK_BYTES
        if len(letters) >= LEAST // BLOCK <= room:
            assert found(prefixes, letters) == letters[:room]
        for other in texts:
            assert other.startswith(found(prefixes, other))


def test_the_common_prefix_ends_with_a_whole_block():
    assert common_prefix([text("ssssA"), text("ssssB"), text("ssss")]) == text("ssss")
    assert common_prefix([(*text("ss"), 1, 2), (*text("ss"), 1)]) == text("ss")
    assert common_prefix([text("sA"), text("xA")]) == ()
