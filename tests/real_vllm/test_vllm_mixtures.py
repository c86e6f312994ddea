"""Mixtures of experts in a real vLLM: what we save is loaded, and what we push is computed with."""

import os

import pytest
import torch
from fake_vllm.started import started_server
from transformers import MixtralConfig, MixtralForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.types import Message, Sampling
from ludic_train.cluster.publish.files import FilesPublisher
from ludic_train.cluster.servers.vllm_command import ServeOptions, find_vllm
from ludic_train.models.chat_template import chat_renderer
from ludic_train.models.load import save_model
from ludic_train.models.tokenizer import make_tokenizer

pytestmark = pytest.mark.vllm
TOKENIZER = make_tokenizer(["What is 12 + 30? The answer is 42."])
SIZES = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "num_experts_per_tok": 2,
    "intermediate_size": 64,
    "eos_token_id": TOKENIZER.eos_token_id,
    "pad_token_id": TOKENIZER.pad_token_id,
    "bos_token_id": None,
}


def mixture(kind):
    torch.manual_seed(0)
    if kind == "mixtral":
        return MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=4)).eval()
    config = Qwen3MoeConfig(**SIZES, num_experts=4, moe_intermediate_size=64, norm_topk_prob=True)
    return Qwen3MoeForCausalLM(config).eval()


@torch.no_grad()
def change(model):
    for param in model.parameters():
        param.add_(0.05 * torch.randn_like(param))


async def difference(client, model):
    """Most nats between the server's log-probs of a completion and the model's."""
    dialog = [Message(role="user", content="What is 30?")]
    found = await client.complete(dialog, Sampling(max_tokens=24))
    ids = torch.tensor([[*found.prompt_ids, *found.completion_ids]])
    with torch.no_grad():
        logits = model(ids).logits[0, len(found.prompt_ids) - 1 : -1]
    logprobs = logits.log_softmax(-1)
    expected = logprobs.gather(1, torch.tensor(found.completion_ids)[:, None])[:, 0]
    return float((torch.tensor(found.logprobs) - expected).abs().max())


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe"])
async def test_log_probs_after_a_push_are_the_trainers(kind, tmp_path):
    python = os.environ.get("LUDIC_VLLM_PYTHON")
    if python is None:
        pytest.skip("LUDIC_VLLM_PYTHON names no Python with vLLM; `make test-vllm` does")
    model = mixture(kind)
    save_model(model, TOKENIZER, tmp_path / "model")
    flags = ["--max-model-len", "512"]
    options, vllm = ServeOptions(port=0), find_vllm(python)
    with started_server(str(tmp_path / "model"), options, vllm, flags) as server:
        client = VLLMTokenClient(server.url, chat_renderer(TOKENIZER), seeds=False)
        assert await difference(client, model) < 1e-4
        publisher = FilesPublisher(server.url, clients=[client], model=model)
        for version in (1, 2):
            change(model)
            await publisher.publish(model.named_parameters(), version)
            assert await difference(client, model) < 1e-4
        await client.aclose()
