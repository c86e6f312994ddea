"""A real vLLM, on the CPU, of two tiny models: one whose head is tied to its embeddings, one not.

LUDIC_VLLM_PYTHON names the Python that has it; `make test-vllm` sets that up.
"""

import os
from dataclasses import dataclass

import pytest
import torch
from fake_vllm.started import started_server
from torch import nn
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

from ludic_train.cluster.servers.vllm_command import ServeOptions, find_vllm
from ludic_train.models.chat_template import render_chat
from ludic_train.models.load import save_model
from ludic_train.models.tokenizer import make_tokenizer


@dataclass(frozen=True)
class Engine:
    """A server, and what the trainer has of the same model."""

    url: str
    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    folder: str

    def render(self, messages, reply_comes):
        return render_chat(self.tokenizer, messages, reply_comes=reply_comes)

    @torch.no_grad()
    def logprobs(self, prompt, ids, temperature=1.0):
        """Log-probs of `ids` after `prompt` under the trainer's params, [len(ids)]."""
        row = torch.tensor([[*prompt, *ids]])
        logits = self.model(row).logits[0, len(prompt) - 1 : -1].float() / temperature
        return logits.log_softmax(-1).gather(1, row[0, len(prompt) :, None])[:, 0]

    @torch.no_grad()
    def greedy(self, prompt, length):
        """The likeliest continuation under the trainer's params."""
        ids = list(prompt)
        for _ in range(length):
            ids.append(int(self.model(torch.tensor([ids])).logits[0, -1].argmax()))
        return tuple(ids[len(prompt) :])

    def change(self, seed):
        """Other params, so far from those before that every output changes."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for param in self.model.parameters():
                noise = torch.randn(param.shape, generator=generator)
                param.add_(0.02 * noise)


def tiny_model(tokenizer, *, tied):
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=1024,
        initializer_range=0.09,
        tie_word_embeddings=tied,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(int(tied))
    return Qwen3ForCausalLM(config).eval()


@pytest.fixture(scope="session", params=["tied", "untied"])
def engine(request, tmp_path_factory):
    """A running server, and the model that it was started from."""
    python = os.environ.get("LUDIC_VLLM_PYTHON")
    if python is None:
        pytest.skip("LUDIC_VLLM_PYTHON names no Python with vLLM; `make test-vllm` does")
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer = make_tokenizer(["What is 12 + 30? The answer is 42."])
    model = tiny_model(tokenizer, tied=request.param == "tied")
    save_model(model, tokenizer, folder)
    options = ServeOptions(port=0, lora=8)
    flags = ["--max-model-len", "512", "--max-num-seqs", "64"]
    with started_server(str(folder), options, find_vllm(python), flags) as server:
        yield Engine(server.url, model, tokenizer, str(folder))
