"""The local engine served on a free port, and what the trainer has of the same model."""

import asyncio
import copy
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache

import aiohttp
import torch

from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_train.agents.served_model import ServedModel
from ludic_train.cluster.publish.files import FilesPublisher, write_params
from ludic_train.engine.client import LocalChatClient
from ludic_train.models.chat_template import render_chat
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer

LIMIT_S = 30
GENERATE = "/inference/v1/generate"
REQUEST = {
    "token_ids": [5, 6],
    "sampling_params": {"max_tokens": 200, "seed": 0, "logprobs": 0},
}


@cache
def tokenizer():
    return make_tokenizer(["What is 12 + 30? The answer is 42."])


@dataclass
class Server:
    """A server, and a client in this process of a model that began as its own.

    model: the trainer's; to change it changes nothing that is served.
    """

    url: str
    served: ServedModel
    model: torch.nn.Module
    client: LocalChatClient
    session: aiohttp.ClientSession

    def tokens_client(self, **options):
        def render(messages, reply_comes):
            return render_chat(tokenizer(), messages, reply_comes=reply_comes)

        return VLLMTokenClient(self.url, render, **options)

    def publisher(self, *others, **options):
        urls = [server.url for server in (self, *others)]
        return FilesPublisher(urls, limit_s=LIMIT_S, **options)

    async def staged(self, folder, change=lambda folder: None):
        """Status of the announcement of all params. change: of their files before it."""
        await write_params(folder, self.model.named_parameters())
        change(folder)
        info = {"update_info": {"folder": str(folder)}}
        return (await self.post("/update_weights", info))[0]

    async def get(self, path):
        async with self.session.get(self.url + path) as answer:
            return answer.status, await answer.json()

    async def post(self, path, body=None, **kwargs):
        """Status and JSON; bytes are sent as they are."""
        how = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with self.session.post(self.url + path, **how, **kwargs) as answer:
            return answer.status, await answer.json()

    async def refusal(self, path, body=None):
        """The status and the message of an error."""
        status, answer = await self.post(path, body)
        return status, answer["error"]["message"]

    async def begun(self, count):
        """That many requests that are under way, for as long as 200 tokens of a slow model take."""
        embeddings = self.served.model.model.embed_tokens
        embeddings.register_forward_pre_hook(lambda *_: time.sleep(0.002))
        tasks = [asyncio.create_task(self.post(GENERATE, REQUEST)) for _ in range(count)]
        while self.served.client.in_flight < count:
            await asyncio.sleep(0)
        return tasks

    def change(self, seed):
        """Other params for the trainer, so far from those before that every log-prob changes."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for param in self.model.parameters():
                param.add_(0.05 * torch.randn(param.shape, generator=generator))
        return self.params()

    def params(self):
        """Copies of the trainer's params."""
        return {name: param.detach().clone() for name, param in self.model.named_parameters()}

    def assert_has(self, params, version):
        """The server computes with these params, and calls them so."""
        assert self.served.version == version
        for name, param in self.served.model.named_parameters():
            assert torch.equal(param, params[name]), name

    @torch.no_grad()
    def logprobs(self, prompt, ids, params=None, temperature=1.0):
        """Log-probs of `ids` after `prompt` as transformers computes them, [len(ids)]."""
        row = (torch.tensor([[*prompt, *ids]]),)
        logits = torch.func.functional_call(self.model, params or {}, row).logits
        found = (logits[0, len(prompt) - 1 : -1] / temperature).log_softmax(-1)
        return found.gather(1, torch.tensor(ids)[:, None])[:, 0]


@asynccontextmanager
async def serving(*, tied=True):
    """A server of a tiny model."""
    model = make_tiny_model(tokenizer(), max_positions=256).eval()
    if not tied:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone() * 1.5)
        model.config.tie_word_embeddings = False
    served = ServedModel("m", copy.deepcopy(model), tokenizer())
    async with served.gateway().running() as gateway, aiohttp.ClientSession() as session:
        yield Server(gateway.url, served, model, LocalChatClient(model, tokenizer()), session)
