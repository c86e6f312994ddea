"""the local engine served on a free port, and what the trainer has of the same model."""

import copy
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest
import torch

from ludic_train.cluster.servers.local.process import running
from ludic_train.cluster.servers.local.served_model import Served
from ludic_train.engine.client import LocalChatClient
from ludic_train.models.chat_template import render_chat
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.processes import bound_socket, url_of


@dataclass
class Server:
    """A server, and a client in this process of a model that began as its own.

    model: the trainer's; to change it changes nothing that is served.
    """

    url: str
    served: Served
    model: torch.nn.Module
    client: LocalChatClient
    session: aiohttp.ClientSession

    def render(self, messages, reply_comes):
        return render_chat(self.served.tokenizer, messages, reply_comes=reply_comes)

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

    def change(self, seed):
        """Other params for the trainer, so far from those before that every log-prob changes."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for param in self.model.parameters():
                param.add_(0.05 * torch.randn(param.shape, generator=generator))

    @torch.no_grad()
    def logprobs(self, prompt, ids, params=None, temperature=1.0):
        """Log-probs of `ids` after `prompt` as transformers computes them, [len(ids)]."""
        row = (torch.tensor([[*prompt, *ids]]),)
        logits = torch.func.functional_call(self.model, params or {}, row).logits
        found = (logits[0, len(prompt) - 1 : -1] / temperature).log_softmax(-1)
        return found.gather(1, torch.tensor(ids)[:, None])[:, 0]


@pytest.fixture(scope="session")
def tokenizer():
    return make_tokenizer(["What is 12 + 30? The answer is 42."])


@pytest.fixture(params=[True], ids=["tied"])
def model(request, tokenizer):
    model = make_tiny_model(tokenizer, max_positions=256).eval()
    if not request.param:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone() * 1.5)
        model.config.tie_word_embeddings = False
    return model


@asynccontextmanager
async def serving(model, tokenizer):
    """A server of a copy of the model."""
    served = Served("m", copy.deepcopy(model), tokenizer)
    with bound_socket("127.0.0.1", 0) as bound:
        runner = await running(served, bound)
        url = url_of("127.0.0.1", bound.getsockname()[1])
        async with aiohttp.ClientSession() as session:
            yield Server(url, served, model, LocalChatClient(model, tokenizer), session)
        await runner.cleanup()


@pytest.fixture
async def server(model, tokenizer):
    async with serving(model, tokenizer) as server:
        yield server


@pytest.fixture
async def servers(model, tokenizer):
    """Two of the same model."""
    async with serving(model, tokenizer) as one, serving(model, tokenizer) as other:
        yield [one, other]
