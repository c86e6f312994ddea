"""Params between processes on cards. By hand, where there is one: pytest -m gpu."""

import json
import os
import subprocess
import sys

import pytest
import torch

from ludic_vllm.cards import group_of, own_peer, shared_fields
from ludic_vllm.wire import broadcast, checksum, open_store

pytestmark = pytest.mark.gpu
SIZE = 2**20
# Another process, as a vLLM worker receives. Arguments: of the call, as JSON.
RECEIVER = """
import json, sys, torch
from ludic_vllm.cards import group_of, joined_store, opened, received
from ludic_vllm.wire import checksum
given = json.loads(sys.argv[1])
device = torch.device(given["device"])
if "fields" in given:
    buffers = [opened(given["fields"], given["size"], device)]
else:
    store = joined_store("127.0.0.1", given["port"], 60.0)
    group = group_of(store, 1, 2, device=device, timeout_s=60.0)
    buffers = [received(group, given["size"], device) for _ in range(3)]
print(json.dumps([checksum(buffer) for buffer in buffers]))
"""


def receiver(**given):
    """A process that receives."""
    return subprocess.Popen(
        [sys.executable, "-c", RECEIVER, json.dumps({"size": SIZE, **given})],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


def sums(process):
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(text.splitlines()[-1])


def random_buffer(device):
    return torch.randint(0, 256, (SIZE,), dtype=torch.uint8, device=device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_another_process_opens_the_handle_of_a_buffer_on_the_same_card():
    for _ in range(3):
        buffer = random_buffer("cuda:0")
        torch.cuda.synchronize()
        fields = json.loads(json.dumps(shared_fields(buffer)))
        assert sums(receiver(fields=fields, device="cuda:0")) == [checksum(buffer)]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not two CUDA devices")
def test_another_card_receives_what_is_broadcast_by_nccl():
    device, store = torch.device("cuda:0"), open_store("127.0.0.1", timeout_s=60.0)
    process = receiver(port=store.port, device="cuda:1")
    group = group_of(store, 0, 2, device=device, timeout_s=60.0)
    sent = []
    for _ in range(3):
        buffer = random_buffer(device)
        broadcast(group, buffer)
        sent.append(checksum(buffer))
    assert sums(process) == sent


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_card_says_which_it_is():
    peer = own_peer(torch.device("cuda:0"))
    assert peer.card
    assert len(peer.nccl) == 3
