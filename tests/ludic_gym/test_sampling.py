"""Sampling masks as bytes."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.errors import DataError
from ludic_gym.sampling import derived_seed, packed_masks, turn_sampling, unpacked_masks
from ludic_gym.types import Sampling

IDS = st.integers(0, 2**31 - 1)
MASKS = st.lists(
    st.tuples(IDS, st.sets(IDS, max_size=40)).map(lambda pair: (pair[0], pair[1] | {pair[0]}))
)


def unpacked(packed, drawn):
    """A set for each token."""
    sizes, ids = unpacked_masks(packed, np.array(drawn, np.int64))
    return [set(part.tolist()) for part in np.split(ids, sizes.cumsum()[:-1])][: len(drawn)]


@given(MASKS, MASKS)
def test_masks_come_back_also_those_of_two_completions_in_a_row(first, second):
    packed = b""
    for pairs in (first, second):
        packed += packed_masks([list(mask) for _, mask in pairs], [token for token, _ in pairs])
    both = first + second
    assert unpacked(packed, [token for token, _ in both]) == [mask for _, mask in both]


@pytest.mark.parametrize(
    ("masks", "drawn", "packed"),
    [
        ([], [], b""),
        ([[4]], [4], b"\0"),
        # 0 is at distance 1 from -1; 200 is at 200 from 0, which is 0b1_1001000.
        ([[200, 0, 7]], [7], b"\x01\xc8\x01\0"),
        ([[3, 4], [4, 3]], [3, 4], b"\x05\0\x04\0"),
    ],
)
def test_the_bytes_are_distances_in_leb128(masks, drawn, packed):
    assert packed_masks(masks, drawn) == packed


@pytest.mark.parametrize(
    ("masks", "drawn", "why"),
    [
        ([[1, 2]], [3], "token 3 must be once in its sampling mask"),
        ([[1, 1]], [1], "token 1 must be once"),
        ([[1, 2, 2]], [1], "an id twice"),
        ([[1, -2]], [1], "a negative one"),
        ([[1], []], [1, 1], "token 1 must be once"),
        ([[1]], [1, 1], "1 sampling masks for 2 tokens"),
    ],
)
def test_masks_that_no_sampler_has_are_refused(masks, drawn, why):
    with pytest.raises(DataError, match=why):
        packed_masks(masks, drawn)


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (b"", "0 sampling masks for 1 tokens"),
        (b"\x05", "0 sampling masks for 1 tokens"),
        (b"\0\0", "2 sampling masks for 1 tokens"),
        (b"\0\x05", "1 sampling masks for 1 tokens"),
        (b"\x80", "1 bytes are no sampling masks"),
        # 5 with a leading zero, and a number of six bytes.
        (b"\x85\x00\0", "3 bytes are no sampling masks"),
        (b"\x81\x81\x81\x81\x81\x01\0", "7 bytes are no sampling masks"),
        # The drawn token 7 is at distance 8 from -1.
        (b"\x08\0", "its drawn token twice"),
        (b"\xff\xff\xff\xff\x7f\0", "beyond"),
    ],
)
def test_bytes_that_are_no_masks_are_refused(packed, why):
    with pytest.raises(DataError, match=why):
        unpacked_masks(packed, np.array([7]))


@given(st.binary(max_size=30), st.integers(0, 5))
def test_any_bytes_are_masks_in_one_form_or_an_error(packed, count):
    drawn = [10**6 + k for k in range(count)]
    try:
        masks = unpacked(packed, drawn)
    except DataError:
        return
    assert packed_masks([list(mask) for mask in masks], drawn) == packed


CHANGED = Sampling(
    temperature=0.5, top_p=0.9, top_k=7, min_p=0.1, max_tokens=9, max_length=30, stop=("x",), seed=3
)


def test_a_turn_keeps_every_parameter_but_the_seed() -> None:
    default = Sampling()
    assert all(getattr(CHANGED, f.name) != getattr(default, f.name) for f in fields(Sampling))
    assert turn_sampling(CHANGED, 2) == replace(CHANGED, seed=derived_seed(3, 2))
