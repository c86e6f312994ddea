"""Params that arrive beside the server's work, and the checks before they may be put in."""

import threading
import time

import pytest
import torch

from ludic_vllm.staging import Staging
from ludic_vllm.wire import checksum, mapped, packed

PARAMS = {"a": torch.arange(6.0).view(2, 3), "b": torch.full((5,), 7, dtype=torch.int8)}
SHAPES = {name: tuple(param.shape) for name, param in PARAMS.items()}


def chunks():
    """A chunk per param."""
    return list(packed(PARAMS.items(), chunk_bytes=1))


def add(staging, chunk, receive=None, expected=None):
    known = checksum(chunk.buffer) if expected is None else expected
    staging.add(chunk.infos, receive or (lambda: chunk.buffer.clone()), known)


def test_params_arrive_in_order_while_the_caller_continues():
    staging, (one, two), order, go = Staging(SHAPES), chunks(), [], threading.Event()

    def slow():
        go.wait(30)
        order.append("a")
        return one.buffer

    def fast():
        order.append("b")
        return two.buffer

    add(staging, one, slow)
    add(staging, two, fast)
    # Here the server would sample; neither of the two has blocked it.
    assert order == []
    go.set()
    staged = staging.settled()
    assert order == ["a", "b"]
    assert {name: tensor.tolist() for name, tensor in staged.items()} == {
        name: tensor.tolist() for name, tensor in PARAMS.items()
    }


def test_params_that_the_model_does_not_have_are_refused_before_they_are_received():
    (one, _), received = chunks(), []
    with pytest.raises(ValueError, match=r"no params of a \[2, 3\]; is the trainer's model"):
        add(Staging({"a": (3, 2)}), one, lambda: received.append(1))
    assert received == []


def test_a_missing_param_is_named():
    staging = Staging(SHAPES)
    add(staging, chunks()[0])
    with pytest.raises(ValueError, match="the update lacks b"):
        staging.settled()


def test_a_damaged_buffer_is_refused():
    staging, (one, _) = Staging(SHAPES), chunks()
    damaged = one.buffer.clone()
    # 2.0 becomes 3.0: its upper two bytes 0x4000 become 0x4040.
    damaged[10] = 0x40
    add(staging, one, lambda: damaged, checksum(one.buffer))
    with pytest.raises(ValueError, match=r"checksum of a is -?\d+, the trainer's -?\d+"):
        staging.settled()


def test_an_error_of_the_transfer_ends_the_session_at_the_next_chunk():
    staging, (one, two), gone = Staging(SHAPES), chunks(), threading.Event()

    def lost():
        gone.set()
        raise RuntimeError("connection reset by peer")

    def receive_on():
        while True:
            add(staging, two)
            time.sleep(0.01)

    add(staging, one, lost)
    assert gone.wait(30)
    with pytest.raises(ValueError, match="connection reset by peer"):
        receive_on()


def test_the_checksum_is_the_sum_of_the_words():
    # Two words of 64 bits, 1 and 2**8, and 5 bytes of 1 after them.
    buffer = torch.tensor([1] + [0] * 7 + [0, 1] + [0] * 6 + [1] * 5, dtype=torch.uint8)
    assert checksum(buffer) == 1 + 256 + 5
    # -1 and -1: a sum wraps around instead of overflowing.
    assert checksum(torch.full((16,), 255, dtype=torch.uint8)) == -2


def test_a_mapped_file_outlives_its_name_and_must_have_the_announced_size(tmp_path):
    path = tmp_path / "chunk.bin"
    path.write_bytes(bytes(range(64)))
    with pytest.raises(ValueError, match="has 64 bytes, announced were 65"):
        mapped(str(path), 65)
    buffer = mapped(str(path), 64)
    path.unlink()
    assert buffer.tolist() == list(range(64))


def test_chunks_are_loaded_in_order_and_the_last_one_is_known():
    loaded = []

    def load(params, is_last):
        loaded.append(({name: tensor.tolist() for name, tensor in params.items()}, is_last))

    staging = Staging(SHAPES, load, keep=False)
    for chunk in chunks():
        add(staging, chunk)
    # Released where they are not kept.
    assert staging.settled() == {"a": None, "b": None}
    assert loaded == [
        ({"a": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]}, False),
        ({"b": [7, 7, 7, 7, 7]}, True),
    ]


def test_params_are_settled_when_they_have_been_loaded():
    go = threading.Event()
    staging = Staging(SHAPES, lambda params, is_last: go.wait(30))
    for chunk in chunks():
        add(staging, chunk)
    assert not staging.is_settled
    go.set()
    staging.settled()
    assert staging.is_settled


def test_a_load_that_fails_ends_the_session():
    def load(params, is_last):
        raise ValueError("the loader knows no such layer")

    staging = Staging(SHAPES, load)
    add(staging, chunks()[0])
    with pytest.raises(ValueError, match="the loader knows no such layer"):
        staging.settled()
