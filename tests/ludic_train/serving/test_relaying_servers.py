"""Servers in processes of their own that pass params on to each other, one of them killed."""

import asyncio
import os
import sys

import pytest
import torch

from ludic_train.models.exact import param_checksums
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.publishers.control import ControlClient
from ludic_train.publishers.tcp import TcpWire
from ludic_train.publishers.vllm import VLLMPublisher
from ludic_train.server_tokens import KEY_VARIABLE
from ludic_train.serving.process import ServerProcess, responds, spawn
from ludic_train.serving.startup import free_port, guarded
from ludic_vllm import relay

pytestmark = pytest.mark.long
# Starts a server that passes on one chunk a second, so that a test can act within a chunk.
SLOW = """
import time
from ludic_vllm import relay
relay.PIECE = 2**16
after = relay.Arriving.after
def slowly(*args, **kwargs):
    time.sleep(0.05)
    return after(*args, **kwargs)
relay.Arriving.after = slowly
from ludic_gym.__main__ import main
main()
"""


@pytest.fixture
def fleet(tokenizer, tmp_path, monkeypatch):
    """Five servers at addresses that count as machines of their own, and the trainer's model."""
    # The servers are at no usual address of this machine, where a token would be in a file.
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    model = make_tiny_model(tokenizer, hidden_size=128)
    save_model(model, tokenizer, tmp_path)
    servers = []
    for number in range(2, 7):
        host, port = f"127.0.0.{number}", free_port()
        words = ["serve", str(tmp_path), "--engine", "local", "--threads", "1", "--host", host]
        log = tmp_path / f"{number}.log"
        command = guarded([sys.executable, "-c", SLOW, *words, "--port", str(port)])
        process = spawn(command, log, os.environ)
        servers.append(ServerProcess(f"http://{host}:{port}", log, process))
    try:
        while not all(responds(server.url) for server in servers):
            assert all(server.process.poll() is None for server in servers)
        yield model, servers
    finally:
        for server in servers:
            server.stop()


async def checksums(url):
    """Of all params that the server samples from."""
    client = ControlClient(url)
    try:
        body = {"method": "ludic_checksums", "kwargs": {}}
        return (await client.post("/collective_rpc", body))["results"][0]
    finally:
        await client.aclose()
