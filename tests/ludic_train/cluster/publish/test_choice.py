"""The transport of params that is taken where none is given, by where the workers compute."""

import logging
from dataclasses import replace

import pytest
import torch
from fake_vllm.fleet import running
from torch import nn

from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.cards import GroupWire, IpcWire
from ludic_train.cluster.publish.choice import Choice, chosen, has_room, wire_of
from ludic_train.cluster.publish.tcp import TcpWire
from ludic_train.cluster.publish.transports import FileWire
from ludic_train.cluster.publish.vllm import VLLMPublisher
from ludic_vllm.cards import own_peer
from ludic_vllm.peers import Peer, peer_fields

OWN = Peer(host="here", card="GPU-0", nccl=(2, 27, 3))
ON_HOST = Peer(host="here")
SAME, OTHER = OWN, replace(OWN, card="GPU-1")
AWAY, OLDER = replace(OTHER, host="there"), replace(OTHER, nccl=(2, 26, 2))
CPU = Peer(host="here")

CASES = {
    "one card": (OWN, {"a": [SAME]}, "ipc", ""),
    "two servers on one card": (OWN, {"a": [SAME], "b": [SAME]}, "ipc", ""),
    "another card": (OWN, {"a": [OTHER]}, "nccl", ""),
    "another machine": (OWN, {"a": [AWAY]}, "nccl", ""),
    "cards of two machines": (OWN, {"a": [OTHER], "b": [AWAY]}, "nccl", ""),
    "another version": (OWN, {"a": [OLDER]}, "files", "a has NCCL 2.26.2, and this process 2.27.3"),
    "no version": (OWN, {"a": [replace(AWAY, nccl=())]}, "tcp", "a has NCCL none, and this"),
    "own and another card": (OWN, {"a": [OTHER], "b": [SAME]}, "files", "b shares the card of"),
    "same number elsewhere": (OWN, {"a": [replace(SAME, host="there")]}, "tcp", "a shares the"),
    "tensor parallel": (OWN, {"a": [OTHER, AWAY]}, "tcp", "a spreads its model over 2 cards"),
    "a CPU here": (OWN, {"a": [CPU]}, "files", "a takes params into the memory of its host"),
    "from the host": (ON_HOST, {"a": [OTHER]}, "files", "sends from the memory of its host"),
    "from the host, away": (ON_HOST, {"a": [AWAY]}, "tcp", "sends from the memory of its host"),
    "no cards": (ON_HOST, {"a": [CPU]}, "files", ""),
    "no cards, away": (ON_HOST, {"a": [replace(CPU, host="there")]}, "tcp", ""),
    "another engine": (OWN, {"a": None}, "tcp", ""),
    "another engine too": (OWN, {"a": [OTHER], "b": None}, "tcp", ""),
}


@pytest.mark.parametrize("case", CASES)
def test_the_transport_follows_from_where_workers_compute(case):
    own, workers, transport, reason = CASES[case]
    found = chosen(own, workers, has_room=True)
    assert found.transport == transport
    assert (reason in found.reason) if reason else not found.reason
    less = chosen(own, workers, has_room=False)
    assert less.transport == {"files": "tcp"}.get(transport, transport)


def test_a_failure_between_cards_and_an_allocator_without_handles_are_reasons(monkeypatch):
    found = chosen(OWN, {"a": [OTHER]}, has_room=True, refused="a: no route")
    assert found == Choice("files", "a: no route")
    assert found.describe() == (
        "params go to the servers by shared memory, and not between cards: a: no route"
    )
    assert chosen(OWN, {"a": [OTHER]}, has_room=True).describe().endswith("by NCCL")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    assert "PYTORCH_ALLOC_CONF has expandable_segments" in (
        chosen(OWN, {"a": [SAME]}, has_room=True).reason
    )


def test_each_transport_has_its_wire():
    kinds = {"tcp": TcpWire, "files": FileWire}
    for transport, kind in kinds.items():
        assert type(wire_of(Choice(transport), torch.device("cpu"))) is kind
    assert type(GroupWire("cpu")) is GroupWire
    with pytest.raises(ConfigError, match="FileWire shares memory of a CPU"):
        IpcWire("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("kind", [GroupWire, IpcWire])
def test_without_a_card_the_other_wires_are_named(kind):
    with pytest.raises(ConfigError, match="TcpWire and FileWire need no card"):
        kind()


def test_shared_memory_has_room_for_small_models_alone():
    assert has_room(nn.Linear(2, 2), 0)
    assert not has_room(None, 0)
    with torch.device("meta"):
        assert not has_room(nn.Linear(2**24, 2**24), 0)


async def test_a_server_that_joins_on_another_machine_changes_the_transport_of_all(caplog):
    logger = "ludic_train.cluster.publish.vllm"
    caplog.set_level(logging.INFO, logger=logger)
    messages = lambda: [r.message for r in caplog.records if r.name == logger]  # noqa: E731
    model = nn.Linear(3, 2)
    params = {name: p.detach() for name, p in model.named_parameters()}
    here, away = own_peer(torch.device("cpu")), Peer(host="there", card="GPU-1", nccl=(2, 27, 3))
    async with running(2, params) as (one, two):
        one.peers, two.peers = [peer_fields(here)], [peer_fields(away)]
        publisher = VLLMPublisher([one.url], model=model)
        await publisher.publish(model.named_parameters(), 1)
        assert messages() == ["params go to the servers by shared memory"]
        publisher.fleet.follow([one.url, two.url])
        await publisher.publish(model.named_parameters(), 2)
        assert [server.version for server in (one, two)] == ["2", "2"]
    assert messages()[1:] == [
        "params go to the servers by TCP, and not between cards: this process sends from the "
        "memory of its host"
    ]
    assert one.calls.count("/init_weight_transfer_engine") == 2
