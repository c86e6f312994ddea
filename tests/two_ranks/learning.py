"""Tiny models, random rows, gradients: shared by tests and by the programs they start."""

from dataclasses import replace
from functools import cache

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import MixtralConfig, MixtralForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from ludic_gym.sampling import packed_masks
from ludic_train.algorithms.presets import grpo
from ludic_train.cluster.codec import RolloutGroup
from ludic_train.distributed.fsdp import whole
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.trainer.config import Execution, Guards, TrainerConfig
from ludic_train.trainer.microbatches import plan_update
from ludic_train.trainer.step import forward
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import SAWBatch, SAWItem, TopTokens, Trajectory

MOST_TOKENS = 24


@cache
def tokenizer():
    return make_tokenizer(["a b c"])


def tiny_model(seed=0):
    return make_tiny_model(
        tokenizer(), hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1, seed=seed
    )


def tiny_mixture(kind="qwen3_moe", lora=False):
    """A mixture of 4 experts, 2 of which read a token; with adapters of attention and experts."""
    sizes = {"vocab_size": len(tokenizer()), "hidden_size": 16, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    sizes |= {"initializer_range": 0.2, "max_position_embeddings": 1024, "pad_token_id": 0}
    sizes |= {"num_experts_per_tok": 2, "bos_token_id": None, "eos_token_id": 1}
    torch.manual_seed(0)
    if kind == "mixtral":
        model = MixtralForCausalLM(MixtralConfig(**sizes, num_local_experts=4, intermediate_size=8))
    else:
        config = Qwen3MoeConfig(
            **sizes, num_experts=4, moe_intermediate_size=8, norm_topk_prob=True
        )
        model = Qwen3MoeForCausalLM(config)
    if not lora:
        return model
    experts = ["experts.gate_up_proj", "experts.down_proj"]
    config = LoraConfig(
        r=2, target_modules=["q_proj", "v_proj"], target_parameters=experts, task_type="CAUSAL_LM"
    )
    return get_peft_model(model, config)


def random_rows(count, seed=0, masked=0.0, *, cut=False):
    """Rows of 2 to 24 tokens; a share of `masked` has no action token, but never the first.

    cut: True gives two of three rows sampling masks.
    """
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        length = int(rng.integers(2, MOST_TOKENS + 1))
        mask = (rng.random(length) < 0.5) & (rng.random() >= masked)
        mask[0] = False
        mask[1] |= i == 0
        ids = rng.integers(3, 250, length).astype(np.int32)
        made.append(
            SAWItem(
                input_ids=ids,
                action_mask=mask,
                weight=np.where(mask, rng.normal(), 0).astype(np.float32),
                behavior_logprobs=np.where(mask, rng.normal(-5.5, 0.3, length), 0).astype(
                    np.float32
                ),
                sampling_mask=random_masks(ids[mask], rng) if cut and i % 3 else None,
                versions=np.where(mask, 0, -1).astype(np.int32),
                group=str(i // 2),
            )
        )
    return made


def with_few_prompts(rows, prompts=3, seed=0):
    """The rows from their first sampled token on, after one of some prompts of 1 to 12 tokens."""
    rng = np.random.default_rng(seed)
    texts = [rng.integers(3, 250, rng.integers(1, 13)).astype(np.int32) for _ in range(prompts)]
    made = []
    for row in rows:
        start = int(row.action_mask.argmax()) or 1
        text = texts[rng.integers(prompts)][: MOST_TOKENS - len(row.input_ids) + start]
        put = {"input_ids": text, "action_mask": text < 0, "versions": -np.ones_like(text)}
        zeros = np.zeros(len(text), np.float32)
        put |= {"weight": zeros, "behavior_logprobs": zeros}
        rest = {name: np.concatenate([p, getattr(row, name)[start:]]) for name, p in put.items()}
        made.append(replace(row, **rest))
    return made


def random_masks(drawn, rng):
    """Sampling masks of 1 to 9 tokens."""
    masks = [{token, *rng.integers(3, 250, rng.integers(9)).tolist()} for token in drawn.tolist()]
    return packed_masks(list(map(list, masks)), drawn.tolist())


def random_group(key, count, seed=0):
    """A group of so many rollouts of one step and one row, with random rewards."""
    rewards = np.random.default_rng(seed).normal(size=count)
    made = [
        Trajectory(
            rows=(replace(row, steps=np.where(row.action_mask, 0, -1).astype(np.int32)),),
            rewards=np.array([reward]),
            parsed=np.ones(1, bool),
            completions=np.array([[0, np.count_nonzero(row.action_mask), 0]], np.int32),
            env_id="ludic/X-v0",
            group=key,
        )
        for row, reward in zip(random_rows(count, seed), rewards, strict=True)
    ]
    return RolloutGroup(key=key, trajectories=tuple(made))


def with_experts(rows, layers=2, experts=4, top_k=2):
    """The rows with random experts, which routers would not choose."""
    rng = np.random.default_rng(0)

    def chosen(tokens):
        order = rng.permuted(np.tile(np.arange(experts), (tokens, layers, 1)), axis=-1)
        return order[..., :top_k].astype(np.int16)

    return [replace(row, experts=chosen(len(row.input_ids))) for row in rows]


def sampled_by(model, rows, version=0):
    """The rows with the log-probs that the model gives their tokens, two rows to a group."""
    made = []
    for number, row in enumerate(rows):
        logprobs = np.zeros(len(row.input_ids), np.float32)
        if row.action_mask.any():
            ((alone,),) = plan_update([row], token_budget=10_000)
            logprobs[row.action_mask] = forward(model, alone).logprobs.detach().numpy()
        versions = np.where(row.action_mask, version, -1).astype(np.int32)
        facts = {"behavior_logprobs": logprobs, "versions": versions, "group": f"g{number // 2}"}
        made.append(replace(row, **facts))
    return made


def off(row, nats=2):
    """The row with log-probs of another sampler."""
    return replace(
        row, behavior_logprobs=row.behavior_logprobs - np.float32(nats) * row.action_mask
    )


def with_teacher(rows, k=3, seed=0):
    """The rows with k different tokens at each sampled one, and random log-probs of a teacher."""
    rng = np.random.default_rng(seed)

    def top(tokens):
        logits = rng.normal(size=(tokens, k + 1))
        logprobs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        ids = rng.permuted(np.tile(np.arange(3, 250, dtype=np.int32), (tokens, 1)), axis=1)[:, :k]
        return TopTokens(ids=ids, logprobs=logprobs.astype(np.float32))

    return [replace(row, teacher=top(np.count_nonzero(row.action_mask))) for row in rows]


class Fixed:
    """A source that gives the same batch for ever, and counts how often."""

    def __init__(self, items):
        self.items = tuple(items)
        self.given = 0

    async def next_batch(self, algo):
        self.given += 1
        return SAWBatch(items=self.items)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def settings(budget=10_000, packing=True, device="cpu", **others):
    return TrainerConfig(
        device=device,
        lr=1e-3,
        micro_token_budget=budget,
        max_seq_len=MOST_TOKENS,
        max_grad_norm=1e9,
        guards=Guards(max_kl_at_lag_0=None),
        execution=Execution(packing=packing, **others),
    )


def gradient_of(items, cfg, algo=None, shard=lambda model: model, model=None):
    """The gradient of one update, whole and flat, and its metrics."""
    model = shard(tiny_model() if model is None else model)
    (metrics,) = Trainer(model, algo or grpo(), None, cfg=cfg).update(items)
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.cat([whole(p.grad).flatten() for p in trained]), metrics


def relative_error(found, expected):
    """Of the L2 norm; where every token was clipped, both are exactly 0 and so is this."""
    return float((found.detach() - expected).norm() / expected.norm().clamp(min=1e-12))
