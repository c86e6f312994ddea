"""Buffers between cards, as far as there is none: handles as fields, groups of gloo, peers."""

import json
import threading
from pathlib import Path

import pytest
import torch

from ludic_vllm.cards import group_of, handle_fields, handle_parts, joined_store, own_peer, received
from ludic_vllm.peers import Peer, peer_fields, peer_of
from ludic_vllm.wire import broadcast, open_store

CPU = torch.device("cpu")
# As torch's `_share_cuda_` returns them, without the card.
PARTS = (b"\x00\xff" * 33, 2**28, 512, b"/torch_17_42_0", 3, b"\x07" * 64, True)


def test_a_handle_goes_as_plain_json_and_comes_back():
    fields = json.loads(json.dumps(handle_fields(PARTS)))
    assert fields["handle"] == "00ff" * 33
    assert fields["counter"] == b"/torch_17_42_0".hex()
    assert handle_parts(fields) == PARTS
    assert [type(part) for part in handle_parts(fields)] == [type(part) for part in PARTS]


@pytest.mark.parametrize(
    "wrong", [{}, {**handle_fields(PARTS), "more": 1}, {**handle_fields(PARTS), "handle": 7}]
)
def test_other_fields_are_no_handle(wrong):
    with pytest.raises(ValueError, match=r"no fields of a handle|is no handle"):
        handle_parts(wrong)


def test_a_peer_comes_back_from_json():
    peer = Peer(host="one", card="GPU-5", nccl=(2, 27, 3))
    assert peer_of(json.loads(json.dumps(peer_fields(peer)))) == peer
    here = own_peer(CPU)
    assert (here.card, here.nccl) == ("", ())
    assert here == own_peer(CPU)
    assert here.host


def test_containers_with_shared_memory_of_their_own_are_different_hosts(monkeypatch):
    here = own_peer(CPU)
    # Another device.
    monkeypatch.setattr("ludic_vllm.cards.SHARED_MEMORY", Path("/proc"))
    assert own_peer(CPU).host != here.host


def test_workers_receive_what_rank_0_broadcasts():
    store, found = open_store("127.0.0.1", timeout_s=30), {}

    def work(rank):
        joined = joined_store("127.0.0.1", store.port, 30)
        group = group_of(joined, rank, 3, device=CPU, timeout_s=30)
        found[rank] = [received(group, size, CPU) for size in (5, 7)]

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (1, 2)]
    for thread in threads:
        thread.start()
    group = group_of(store, 0, 3, device=CPU, timeout_s=30)
    for size in (5, 7):
        broadcast(group, torch.arange(size, dtype=torch.uint8))
    for thread in threads:
        thread.join()
    assert [[list(b) for b in found[rank]] for rank in (1, 2)] == [
        [[*range(5)], [*range(7)]],
        [[*range(5)], [*range(7)]],
    ]


def test_a_lost_member_is_an_error():
    store, left = open_store("127.0.0.1", timeout_s=30), threading.Event()

    def work():
        joined = joined_store("127.0.0.1", store.port, 30)
        group = group_of(joined, 1, 2, device=CPU, timeout_s=30)
        del group
        left.set()

    threading.Thread(target=work).start()
    group = group_of(store, 0, 2, device=CPU, timeout_s=5)
    left.wait(30)
    with pytest.raises(RuntimeError):
        # Larger than what the system holds for a connection.
        broadcast(group, torch.zeros(2**26, dtype=torch.uint8))
