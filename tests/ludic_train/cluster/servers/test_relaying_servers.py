"""Servers in processes of their own that pass params on to each other, one of them killed."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import forked
import pytest
import torch

from ludic_train.cluster.publish.control import ControlClient
from ludic_train.cluster.publish.tcp import TcpWire
from ludic_train.cluster.publish.vllm import VLLMPublisher
from ludic_train.cluster.servers.process import responds
from ludic_train.models.exact import param_checksums
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.processes import free_port
from ludic_train.server_tokens import KEY_VARIABLE

pytestmark = pytest.mark.long
# A server that takes a second or two to pass params on, so that it can be killed meanwhile.
SLOW = """
import sys, time
from ludic_vllm import relay
relay.PIECE = 2**16
after = relay.Arriving.after
def slowly(self, start, timeout_s):
    time.sleep(0.1)
    return after(self, start, timeout_s)
relay.Arriving.after = slowly
from ludic_gym.commands.main import main
sys.exit(main())
"""


@dataclass
class Server:
    """A local server at an address that counts as a machine of its own."""

    folder: Path
    host: str

    def __post_init__(self):
        port = free_port(self.host)
        self.url = f"http://{self.host}:{port}"
        words = [str(self.folder), "--engine", "local", "--threads", "1"]
        where = ["--host", self.host, "--port", str(port)]
        self.process = forked.Python(["-c", SLOW, "serve", *words, *where], env=dict(os.environ))

    async def checksums(self):
        """Of the params that it samples from."""
        client = ControlClient(self.url)
        try:
            body = {"method": "ludic_checksums", "kwargs": {}}
            return (await client.post("/collective_rpc", body))["results"][0]
        finally:
            await client.aclose()


@pytest.fixture
def fleet(tokenizer, tmp_path, monkeypatch):
    """Five servers, and the trainer's model, which began as theirs."""
    # None of them is at an address for which the token is in a file.
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    model = make_tiny_model(tokenizer, hidden_size=128)
    save_model(model, tokenizer, tmp_path)
    servers = [Server(tmp_path, f"127.0.0.{number}") for number in range(2, 7)]
    try:
        while not all(responds(server.url) for server in servers):
            assert all(server.process.poll() is None for server in servers)
        yield model, servers
    finally:
        for server in servers:
            server.process.kill()
            server.process.wait()


def changed(model):
    with torch.no_grad():
        for param in model.parameters():
            param.add_(0.05 * torch.randn(param.shape))
    return param_checksums(model)


async def test_a_relay_that_is_killed_in_the_middle_costs_itself_alone(fleet):
    model, servers = fleet
    wire = TcpWire("127.0.0.1", fan_out=2)
    publisher = VLLMPublisher([s.url for s in servers], wire, on_failure="skip")
    expected = changed(model)
    await publisher.publish(model.named_parameters(), 1)
    assert [await s.checksums() for s in servers] == [expected] * 5

    # .2 and .3 fetch from the trainer, .4 and .5 from .2, .6 from .3.
    killed, *others = servers
    expected = changed(model)
    publishing = asyncio.create_task(publisher.publish(model.named_parameters(), 2))
    await asyncio.sleep(0.5)
    assert not publishing.done()
    killed.process.kill()
    await publishing
    assert [await s.checksums() for s in others] == [expected] * 4
    assert [replica.version for replica in publisher.fleet.in_state("ready")] == [2] * 4
    (lost,) = publisher.fleet.in_state("failed")
    assert (lost.url, lost.phase) == (killed.url, "update")

    expected = changed(model)
    await publisher.publish(model.named_parameters(), 3)
    assert [await s.checksums() for s in others] == [expected] * 4
