"""Chunks that go from process to process, and what happens when one of them is lost."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch

from ludic_vllm import relay
from ludic_vllm.receiver import Receiver, Trainer
from ludic_vllm.relay import Arriving, Relay, called

HOST, SECRET, KEY = "127.0.0.1", b"of the run", ("s", 0)
BYTES = torch.randint(0, 256, (3 * relay.PIECE + 5,), dtype=torch.uint8)


@pytest.fixture
def relays():
    """Five of them, each with its address; the first has the chunk."""
    made = [Relay(SECRET) for _ in range(5)]
    with_addresses = [(each, (HOST, each.listen(HOST))) for each in made]
    made[0].offer(KEY, Arriving(BYTES, len(BYTES)))
    yield with_addresses
    for each in made:
        each.close()


def fetched(which, *sources, key=KEY):
    return which.fetch(key, torch.empty_like(BYTES), sources, 30)


def until_filled(which, key, size):
    """Wait until it has that many bytes of the chunk."""
    while key not in which._offers or which._offers[key].filled < size:
        time.sleep(0.001)


def test_a_chain_passes_on_what_it_has_not_got_whole(relays):
    (first, at_first), (second, at_second), (third, at_third), (fourth, _), _ = relays
    half, key = Arriving(BYTES.clone(), relay.PIECE), ("t", 0)
    first.offer(key, half)
    with ThreadPoolExecutor() as threads:
        # The last one first: its source has not heard of the chunk yet.
        pairs = [(fourth, at_third), (third, at_second), (second, at_first)]
        found = [threads.submit(fetched, who, source, key=key) for who, source in pairs]
        until_filled(fourth, key, relay.PIECE)
        assert not any(each.done() for each in found)
        half.advance(len(BYTES) - relay.PIECE)
        for each in found:
            assert torch.equal(each.result(), BYTES)


def test_after_a_lost_source_the_next_one_continues_at_the_same_byte(relays, monkeypatch):
    (good, at_good), (broken, at_broken), (reader, _), *_ = relays
    started = []
    send = Relay._send

    def counted(self, connection, key, start):
        started.append((self, start))
        send(self, connection, key, start)

    monkeypatch.setattr(Relay, "_send", counted)
    partial = Arriving(BYTES.clone(), relay.PIECE)
    broken.offer(KEY, partial)
    with ThreadPoolExecutor() as threads:
        found = threads.submit(fetched, reader, at_broken, at_good)
        until_filled(reader, KEY, relay.PIECE)
        broken.close()
        assert torch.equal(found.result(), BYTES)
    assert started == [(broken, 0), (good, relay.PIECE)]


def test_a_source_that_failed_is_not_tried_again_in_the_session(relays):
    (good, at_good), (reader, _), *_ = relays
    with socket.create_server((HOST, 0)) as closed:
        gone = closed.getsockname()
    assert torch.equal(fetched(reader, gone, at_good), BYTES)
    good.offer(("s", 1), Arriving(BYTES, len(BYTES)))
    with socket.create_server(gone) as back:
        back.settimeout(0.2)
        assert torch.equal(fetched(reader, gone, at_good, key=("s", 1)), BYTES)
        with pytest.raises(TimeoutError):
            back.accept()


def test_a_source_that_stalls_is_left_for_the_next(relays, monkeypatch):
    monkeypatch.setattr(relay, "STALL_S", 0.2)
    (_, at_good), (stalled, at_stalled), (reader, _), *_ = relays
    stalled.offer(KEY, Arriving(BYTES.clone(), 7))
    assert torch.equal(fetched(reader, at_stalled, at_good), BYTES)


def test_without_any_source_each_reason_is_named(relays):
    (reader, _), *_ = relays[1:]
    with socket.create_server((HOST, 0)) as closed:
        gone = closed.getsockname()
    with pytest.raises(RuntimeError, match=f"{HOST}:{gone[1]}: .*refused"):
        fetched(reader, gone)
    assert not reader._offers[KEY].is_whole


def test_chunks_that_are_dropped_end_the_wait_of_those_who_fetch_them(relays):
    (source, at_source), (reader, _), *_ = relays
    source.offer(("t", 0), Arriving(BYTES.clone(), 7))
    with ThreadPoolExecutor() as threads:
        found = threads.submit(fetched, reader, at_source, key=("t", 0))
        until_filled(reader, ("t", 0), 7)
        source.drop()
        with pytest.raises(RuntimeError, match="closed before the end"):
            found.result()


@pytest.mark.parametrize("secret", [b"another", b""])
def test_without_the_secret_there_is_no_byte_of_params(relays, secret):
    request = {"kind": "fetch", "session": "s", "index": 0, "from": 0}
    with pytest.raises(ConnectionError), called(relays[0][1], secret, request, 5):
        pass


def test_a_listener_without_the_secret_is_no_source(relays):
    impostor = Relay(b"another")
    impostor.offer(KEY, Arriving(torch.zeros_like(BYTES), len(BYTES)))
    address = (HOST, impostor.listen(HOST))
    assert torch.equal(fetched(relays[1][0], address, relays[0][1]), BYTES)
    impostor.close()


@pytest.mark.parametrize(
    "line", [b"[1]\n", b"{}\n", b"{" * 20_000, b'{"kind": "fetch"}\n', b"\xff\n"]
)
def test_a_line_that_makes_no_sense_costs_its_connection_alone(relays, line):
    (_, address), (reader, _), *_ = relays
    with socket.create_connection(address, 5) as connection:
        theirs = relay.read_exactly(connection, relay.NONCE)
        own = bytes(relay.NONCE)
        connection.sendall(own + relay._proof(SECRET, b"caller", theirs, own) + line)
        relay.read_exactly(connection, relay.PROOF)
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    assert torch.equal(fetched(reader, address), BYTES)


@pytest.fixture
def trainer():
    made = Trainer(SECRET)
    yield made, (HOST, made.listen(HOST))
    made.close()


def receiver(address, member):
    return Receiver(address, SECRET, member, timeout_s=10)


def test_a_trainer_knows_its_workers_and_what_they_have(trainer):
    known, address = trainer
    one, two = (receiver(address, n) for n in (3, 4))
    members = known.members((3, 4), 10)
    assert sorted(members) == [3, 4]
    one.report(KEY)
    known.wait(KEY, [3], 10)
    with pytest.raises(RuntimeError, match=r"no end of chunk 0 within 0\.1 s"):
        known.wait(KEY, [3, 4], 0.1)
    two.report(KEY, "the checksum differs")
    with pytest.raises(RuntimeError, match="the checksum differs"):
        known.wait(KEY, [3, 4], 10)
    one.close()
    with pytest.raises(RuntimeError, match=r"the connection of 127.0.0.1:\d+ is lost"):
        known.wait(("s", 1), [3], 10)
    assert sorted(known.members((3, 4))) == [4]
    two.close()


def test_a_worker_that_is_lost_ends_the_wait_for_it(trainer):
    known, address = trainer
    one = receiver(address, 0)
    known.members([0], 10)
    threading.Timer(0.2, one.close).start()
    with pytest.raises(RuntimeError, match="is lost"):
        known.wait(KEY, [0], 30)
