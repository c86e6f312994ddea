"""Updates, log-probs and the local engine on a card. By hand, where there is one: pytest -m gpu."""

import asyncio
import random

import pytest
import torch
from peft import LoraConfig, get_peft_model
from shapes import random_model
from two_ranks.learning import (
    MOST_TOKENS,
    gradient_of,
    random_rows,
    relative_error,
    settings,
    tiny_mixture,
    tokenizer,
    with_experts,
    with_few_prompts,
)

from ludic_gym.types import Sampling
from ludic_train.algorithms.presets import grpo
from ludic_train.distributed.device import process_group
from ludic_train.distributed.fsdp import shard_model, whole_params
from ludic_train.engine.client import LocalChatClient
from ludic_train.models.head import plain_logprobs
from ludic_train.models.tiny import make_tiny_model
from ludic_train.trainer.config import Guards, TrainerConfig
from ludic_train.trainer.trainer import Trainer

CARD = "cuda:0"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


def small_model():
    """A model whose heads are as wide as FlexAttention needs."""
    return make_tiny_model(
        tokenizer(), hidden_size=64, num_layers=2, num_heads=2, num_kv_heads=1, seed=0
    )


def on_card(model):
    return model.to(CARD)


# torch and transformers call functions of their own that they have replaced, and torch's compiler
# reads the gradients of tensors that have none.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute:UserWarning")
@pytest.mark.parametrize("packing", [True, False])
@pytest.mark.parametrize("attention", ["sdpa", "eager", "flex_attention"])
def test_a_gradient_is_that_of_the_cpu(attention, packing):
    items = with_few_prompts(random_rows(24, seed=5, cut=True))
    expected, _ = gradient_of(items, settings(100, packing=False), model=small_model())
    cfg = settings(100, packing=packing, device=CARD, attention=attention)
    found, _ = gradient_of(items, cfg, shard=on_card, model=small_model())
    assert relative_error(found.cpu(), expected) < 1e-4


def test_experts_are_replayed_on_a_card():
    items = with_experts(random_rows(12, seed=5))
    cfg = settings(100), settings(100, device=CARD)
    expected, _ = gradient_of(items, cfg[0], model=tiny_mixture())
    found, _ = gradient_of(items, cfg[1], shard=on_card, model=tiny_mixture())
    assert relative_error(found.cpu(), expected) < 1e-4


@pytest.mark.parametrize("is_kept", [True, False])
def test_logits_and_gradients_of_16_bits_are_added_up_in_float32(is_kept):
    torch.manual_seed(0)
    hidden = torch.randn(3000, 256, device=CARD).bfloat16().requires_grad_()
    weight = (torch.randn(20_000, 256, device=CARD) / 8).bfloat16().requires_grad_()
    targets = torch.randint(20_000, (3000,), device=CARD)
    temperature = torch.rand(3000, device=CARD) + 0.5
    given = torch.randn(2, 3000, device=CARD)
    logprobs, entropy = plain_logprobs(hidden, weight, targets, temperature, is_kept=is_kept)
    (given[0] @ logprobs + given[1] @ entropy).backward()
    inputs = [each.detach().double().requires_grad_() for each in (hidden, weight)]
    of_all = (inputs[0] @ inputs[1].t() / temperature[:, None]).log_softmax(-1)
    expected = of_all.gather(1, targets[:, None])[:, 0], -(of_all.exp() * of_all).sum(1)
    (given[0].double() @ expected[0] + given[1].double() @ expected[1]).backward()
    torch.testing.assert_close(logprobs.double(), expected[0], atol=1e-4, rtol=0)
    torch.testing.assert_close(entropy.double(), expected[1], atol=1e-4, rtol=0)
    # Of 8 bits, in each of the factors and in the sum.
    assert relative_error(hidden.grad.double(), inputs[0].grad) < 1e-2
    assert relative_error(weight.grad.double(), inputs[1].grad) < 1e-2


def trained(**options):
    """Params after three updates on the card, of a model that `shard_model` spread."""
    with process_group("cuda"):
        model = shard_model(small_model(), device=CARD, **options.pop("shard", {}))
        cfg = TrainerConfig(
            device=CARD,
            lr=1e-3,
            max_seq_len=MOST_TOKENS,
            guards=Guards(max_kl_at_lag_0=None),
            **options,
        )
        trainer = Trainer(model, grpo(), None, cfg=cfg)
        for seed in range(3):
            trainer.update(random_rows(16, seed=seed))
        return torch.cat([param.flatten().float().cpu() for _, param in whole_params(model)])


def test_params_in_the_memory_of_the_host_learn_the_same():
    found, expected = trained(shard={"offload": True}), trained()
    assert relative_error(found, expected) < 1e-3


def sharp_model():
    """A model with sharp distributions, which show errors."""
    model = random_model("135M", device=CARD)
    with torch.no_grad():
        model.model.norm.weight.mul_(3)
    return model


def errors_of_sampled(client, model, seed=0):
    """Differences of the log-probs of 30 ragged completions from those of the full forward."""
    rng = random.Random(seed)
    asked = [
        ([rng.randrange(3, 49_000) for _ in range(rng.randrange(1, 300))], temperature)
        for temperature in [0.0, 0.7, 1.0] * 10
    ]

    async def sampled():
        return await asyncio.gather(
            *(
                client.continued(ids, Sampling(max_tokens=24, temperature=temperature, seed=0))
                for ids, temperature in asked
            )
        )

    errors = []
    for completion, (ids, temperature) in zip(asyncio.run(sampled()), asked, strict=True):
        whole = torch.tensor([[*ids, *completion.completion_ids]], device=CARD)
        with torch.inference_mode():
            logits = model(whole).logits[0, len(ids) - 1 : -1].float() / (temperature or 1.0)
        own = torch.tensor(completion.completion_ids, device=CARD)
        expected = logits.log_softmax(-1).gather(1, own[:, None])[:, 0].cpu()
        errors.append((torch.tensor(completion.logprobs) - expected).abs())
    return torch.cat(errors)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 2e-3), (torch.bfloat16, 0.2)])
def test_log_probs_of_the_local_engine_are_those_of_the_full_forward(dtype, most):
    model = sharp_model().to(dtype)
    client = LocalChatClient(model, tokenizer())
    errors = errors_of_sampled(client, model)
    assert client.cached_keys.device == torch.device(CARD)
    assert errors.mean() < most / 10
    assert errors.max() < most


def test_steps_see_params_and_adapters_that_have_changed():
    model = get_peft_model(sharp_model(), LoraConfig(r=4, target_modules=["q_proj", "down_proj"]))
    client = LocalChatClient(model.eval(), tokenizer())
    for seed in range(3):
        errors = errors_of_sampled(client, model, seed)
        assert errors.max() < 2e-3
        with torch.no_grad():
            for name, param in model.named_parameters():
                if "lora_B" in name:
                    param.normal_(std=0.05)
            model.base_model.model.model.norm.weight.mul_(0.9)
