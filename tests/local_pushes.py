"""What tests of pushes to the local server share."""

import asyncio
import time

import torch

from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_train.cluster.publish.files import FilesPublisher, write_params

LIMIT_S = 30
GENERATE = "/inference/v1/generate"
REQUEST = {
    "token_ids": [5, 6],
    "sampling_params": {"max_tokens": 200, "seed": 0, "logprobs": 0},
}


def client_of(server):
    return VLLMTokenClient(server.url, server.render)


def publisher(*servers, **kwargs):
    urls = [server.url for server in servers]
    return FilesPublisher(urls, limit_s=LIMIT_S, **kwargs)


def kept(model):
    return {name: param.detach().clone() for name, param in model.named_parameters()}


def assert_has(server, params, version):
    """The server computes with these params, and calls them so."""
    assert server.served.version == version
    for name, param in server.served.model.named_parameters():
        assert torch.equal(param, params[name]), name


async def asked(server, count):
    """That many requests that are under way, for as long as 200 tokens of a slow model take."""
    server.served.model.model.embed_tokens.register_forward_pre_hook(lambda *_: time.sleep(0.002))
    tasks = [asyncio.create_task(server.post(GENERATE, REQUEST)) for _ in range(count)]
    while server.served.gate.running + server.served.gate.waiting < count:
        await asyncio.sleep(0)
    return tasks


async def staged(server, folder, change=lambda folder: None):
    """Status of an open session's announcement of all params. change: of their files before it."""
    await write_params(folder, server.model.named_parameters())
    change(folder)
    info = {"update_info": {"folder": str(folder)}}
    return (await server.post("/update_weights", info))[0]
