"""Params in packed buffers."""

import gc

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ludic_vllm.wire import (
    HUGE,
    ParamInfo,
    buffer_bytes,
    captures,
    copy_bytes,
    host_memory,
    info_of,
    packed,
    unpacked,
)

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int8)
shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@given(
    st.lists(st.tuples(st.sampled_from(DTYPES), shapes), max_size=8),
    st.integers(1, 300),
)
def test_what_is_packed_comes_out_again(kinds, chunk_bytes):
    params = [(f"p{i}", torch.randn(s).to(d)) for i, (d, s) in enumerate(kinds)]

    chunks = list(packed(params, chunk_bytes=chunk_bytes))

    found = [pair for c in chunks for pair in unpacked(c.infos, c.buffer)]
    assert [name for name, _ in found] == [name for name, _ in params]
    for (_, sent), (_, received) in zip(params, found, strict=True):
        assert sent.dtype == received.dtype
        assert torch.equal(sent, received)
    for chunk in chunks:
        assert chunk.buffer.numel() == buffer_bytes(chunk.infos)
        assert len(chunk.infos) == 1 or chunk.buffer.numel() <= chunk_bytes


def test_without_alignment_params_lie_side_by_side():
    params = [("a", torch.ones(3)), ("b", torch.ones(2, dtype=torch.bfloat16))]
    (chunk,) = packed(params, chunk_bytes=100, alignment=1)
    assert chunk.buffer.numel() == 3 * 4 + 2 * 2


def test_a_chunk_is_a_copy():
    param = torch.zeros(2)
    (chunk,) = packed([("a", param)], chunk_bytes=100)
    param += 1
    assert dict(unpacked(chunk.infos, chunk.buffer))["a"].tolist() == [0.0, 0.0]


def test_a_param_that_is_no_plain_row_of_memory_is_packed_too():
    param = torch.arange(6.0).view(2, 3).T
    (chunk,) = packed([("a", param)], chunk_bytes=100)
    assert dict(unpacked(chunk.infos, chunk.buffer))["a"].tolist() == param.tolist()


def test_what_is_said_of_a_param():
    info = info_of("w", torch.zeros(2, 3, dtype=torch.bfloat16))
    assert info == ParamInfo(name="w", dtype="bfloat16", shape=(2, 3))
    assert info.num_bytes == 12


@pytest.mark.parametrize("size", [0, 104, HUGE, HUGE + 8])
def test_memory_of_any_size_keeps_what_views_of_it_hold(size):
    last = host_memory(size).fill_(7).view(torch.float64)[-1:]
    gc.collect()
    assert last.view(torch.uint8).tolist() == [7] * 8 * len(last)
    assert host_memory(size).numel() == size


def test_bytes_are_copied_between_buffers_and_no_further():
    target, source = torch.zeros(10, dtype=torch.uint8), torch.arange(4, dtype=torch.uint8)
    copy_bytes(target[3:7], source)
    assert target.tolist() == [0, 0, 0, 0, 1, 2, 3, 0, 0, 0]


def test_a_function_that_computes_from_the_memory_of_a_tensor_captures_it():
    matrix, other = torch.ones(2, 2), torch.ones(2, 2)
    view = matrix.t()
    assert captures(lambda x: x @ view, matrix)
    assert not captures(lambda x: x @ other, matrix)
    assert not captures(torch.nn.functional.linear, matrix)
