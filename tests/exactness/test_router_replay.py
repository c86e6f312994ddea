"""Router replay (R3, arXiv:2510.11370): the trainer takes the experts of the sampler."""

import asyncio
import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from model_types import made
from two_ranks.learning import (
    gradient_of,
    random_rows,
    relative_error,
    settings,
    tiny_mixture,
    tiny_model,
    tokenizer,
    with_experts,
)

import ludic_train as lt
from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.types import Completion, Decision, Message, Rollout, Sampling, Step, Task
from ludic_train.agents.served_model import ServedModel
from ludic_train.cluster.codec import RolloutGroup, group_from_bytes, group_to_bytes
from ludic_train.cluster.publish.files import FilesPublisher
from ludic_train.distributed.fsdp import checkpoint_activations
from ludic_train.engine.client import LocalChatClient
from ludic_train.errors import UnsupportedModel, UntrainableRollout
from ludic_train.expert_text import experts_from_base64, experts_to_base64
from ludic_train.models.chat_template import chat_renderer
from ludic_train.models.load import save_model
from ludic_train.models.routing import recorded_experts, replayed_experts, routers
from ludic_train.rows import trajectory_from
from ludic_train.trainer.microbatches import plan_from_bytes, plan_to_bytes, plan_update
from ludic_train.trainer.step import forward, replayed

LAYERS, TOP_K = 2, 2


def replaying(*args, **kwargs):
    return replace(settings(*args, **kwargs), router_replay=True)


kinds = pytest.mark.parametrize("kind", ["qwen3_moe", "mixtral"])


def sampled(model, count=6, **options):
    """Completions of one prompt by the local engine."""
    client = LocalChatClient(model.eval(), tokenizer(), routed_experts=True, **options)

    async def play():
        dialogs = [[Message(role="user", content="a b c"[: 1 + i % 5])] for i in range(count)]
        limits = [Sampling(max_tokens=3 + i, temperature=1.0) for i in range(count)]
        return await asyncio.gather(*map(client.complete, dialogs, limits))

    return asyncio.run(play())


def trajectory_of(*completions):
    """A rollout of one step per completion, in tokens."""
    steps = tuple(
        Step(observation="", decision=Decision(action="", completions=(each,)), reward=1.0, info={})
        for each in completions
    )
    rollout = Rollout(task=Task(env_id="ludic/X-v0"), agent="agent", steps=steps)
    return trajectory_from(rollout)


def row_of(*completions):
    """The rows of such a rollout."""
    return trajectory_of(*completions).rows


def with_weight(row):
    return replace(row, weight=row.action_mask.astype(np.float32))


def chosen_by(model, ids):
    """Experts that transformers' own forward chooses, sorted, [tokens, layers, k]."""
    with torch.no_grad(), recorded_experts(model) as seen:
        model(input_ids=torch.tensor([ids]), use_cache=False)
    return np.stack([seen[layer].sort().values.numpy() for layer in range(LAYERS)], axis=1)


@kinds
def test_the_local_engine_reports_the_experts_of_every_token_and_layer(kind):
    model = tiny_mixture(kind)
    for completion in sampled(model):
        found = experts_from_base64(completion.routed_experts)
        ids = [*completion.prompt_ids, *completion.completion_ids]
        prompt = len(completion.prompt_ids)
        # No expert has read the last token.
        assert found.shape == (len(ids) - 1, LAYERS, TOP_K)
        expected = chosen_by(model, ids)[:-1]
        # In the last layer, tokens of the prompt but its last one lead to nothing.
        assert (found[: prompt - 1, -1] == -1).all()
        assert np.array_equal(np.sort(found[:, :-1], -1), expected[:, :-1])
        assert np.array_equal(np.sort(found[prompt - 1 :], -1), expected[prompt - 1 :])


def test_experts_are_reported_only_on_demand_and_by_mixtures():
    (completion,) = asyncio.run(alone(LocalChatClient(tiny_mixture().eval(), tokenizer())))
    assert completion.routed_experts is None
    with pytest.raises(UnsupportedModel, match=r"'qwen3'.*no router.*turn router replay off"):
        LocalChatClient(tiny_model().eval(), tokenizer(), routed_experts=True)


async def alone(client):
    return [await client.complete([Message(role="user", content="a")], Sampling(max_tokens=2))]


@kinds
def test_replayed_experts_weigh_what_the_own_router_gives_them(kind):
    model = tiny_mixture(kind)
    router = routers(model)[0]
    hidden = torch.randn(1, 3, 16)
    experts = np.full((1, 3, LAYERS, TOP_K), -1, np.int16)
    experts[0, 0, 0], experts[0, 2, 0] = [3, 0], [1, 2]
    own = router(hidden.view(3, 16))
    with replayed_experts(model, experts):
        logits, weights, indices = router(hidden.view(3, 16))
    assert torch.equal(logits, own[0])
    assert indices.tolist() == [[3, 0], own[2][1].tolist(), [1, 2]]
    # A softmax over the two chosen experts alone.
    for token, (a, b) in enumerate(indices.tolist()):
        expected = logits[token, [a, b]].softmax(-1)
        torch.testing.assert_close(weights[token], expected)
    # Their own router again.
    assert torch.equal(router(hidden.view(3, 16))[2], own[2])
    (gradient,) = torch.autograd.grad(weights[0, 0], router.weight)
    # Of experts 3 and 0 alone.
    assert (gradient.abs().sum(-1) > 1e-6).tolist() == [True, False, False, True]


def test_a_router_that_chooses_otherwise_than_by_topk_is_refused():
    with (
        pytest.raises(UnsupportedModel, match="by 0 calls of topk"),
        recorded_experts(model := made("phimoe")),
    ):
        model(input_ids=torch.tensor([[1, 2]]), use_cache=False)


@kinds
def test_a_trainer_whose_router_would_choose_otherwise_learns_through_the_sampled_experts(kind):
    model = tiny_mixture(kind)
    rows = [with_weight(row) for each in sampled(model, 30) for row in row_of(each)]
    trainer = copy.deepcopy(model)
    # As rounding does, but more of it: some tokens would go elsewhere.
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for router in routers(trainer).values():
            router.weight += 0.01 * torch.randn(router.weight.shape, generator=noise)
    ((plan,),) = plan_update(rows, token_budget=10_000, packing=False, router_replay=True)
    with torch.no_grad():
        plain = forward(trainer, plan).logprobs
        with replayed(trainer, plan):
            found = forward(trainer, plan).logprobs
    sampler = torch.from_numpy(plan.behavior_logprobs)
    assert (found - sampler).abs().mean() < 0.7 * (plain - sampler).abs().mean()
    with torch.no_grad(), replayed(model, plan):
        assert (forward(model, plan).logprobs - sampler).abs().max() < 1e-5


@kinds
def test_the_gradient_is_the_same_in_packed_rows_micro_batches_and_with_checkpoints(kind):
    items = with_experts(random_rows(24, seed=3))
    alone, _ = gradient_of(items, replaying(packing=False), model=tiny_mixture(kind))
    for budget in (100, 10_000):
        found, _ = gradient_of(items, replaying(budget), model=tiny_mixture(kind))
        assert relative_error(found, alone) < 1e-6

    def again(model):
        checkpoint_activations(model)
        return model

    found, _ = gradient_of(items, replaying(), shard=again, model=tiny_mixture(kind))
    assert relative_error(found, alone) < 1e-6
    # Without replay, the experts of the rows play no part.
    own, _ = gradient_of(items, settings(), model=tiny_mixture(kind))
    plain, _ = gradient_of(random_rows(24, seed=3), settings(), model=tiny_mixture(kind))
    assert torch.equal(own, plain)
    assert relative_error(own, alone) > 0.1


def test_tokens_of_unknown_experts_choose_for_themselves_beside_others():
    items = with_experts(random_rows(2, seed=1))
    items[0] = replace(items[0], experts=np.full_like(items[0].experts, -1))
    ((mixed,),) = plan_update(items, token_budget=1000, router_replay=True)
    ((own,),) = plan_update(items, token_budget=1000)
    model = tiny_mixture()
    with torch.no_grad(), replayed(model, mixed):
        found = forward(model, mixed).logprobs
    with torch.no_grad():
        expected = forward(model, own).logprobs
    first = torch.from_numpy(mixed.item == 0)
    torch.testing.assert_close(found[first], expected[first])
    assert (found[~first] - expected[~first]).abs().max() > 1e-3


def test_rows_without_experts_cannot_be_replayed():
    items = [random_rows(2)[0], with_experts(random_rows(2))[1]]
    with pytest.raises(UntrainableRollout, match=r"ludic serve --routed-experts"):
        gradient_of(items, replaying(), model=tiny_mixture())
    items[0] = replace(items[1], experts=items[1].experts[:, :1])
    with pytest.raises(UntrainableRollout, match="different models"):
        gradient_of(items, replaying(), model=tiny_mixture())


def test_a_token_keeps_the_experts_of_the_call_that_sampled_it():
    def call(prompt, completion, expert):
        tokens = len(prompt) + len(completion)
        experts = np.full((tokens - 1, LAYERS, TOP_K), expert, np.int16)
        return Completion(
            text="",
            finish_reason="stop",
            prompt_ids=prompt,
            completion_ids=completion,
            logprobs=(-1.0,) * len(completion),
            policy_version=0,
            routed_experts=experts_to_base64(experts),
        )

    (row,) = row_of(call((5, 6), (7, 8), 1), call((5, 6, 7, 8, 9), (10,), 3))
    # Token 8 was the last of the first call, so that the second one was the first to read it.
    assert row.experts[:, 0, 0].tolist() == [1, 1, 1, 3, 3, -1]
    with pytest.raises(UntrainableRollout, match=r"shape \(3, 2, 2\).*of 3 tokens: those of 2"):
        row_of(replace(call((5, 6), (7, 8), 1), completion_ids=(7,), logprobs=(-1.0,)))


@pytest.mark.parametrize("text", ["", "?", "AAAA", experts_to_base64(np.zeros((2, 3), np.int16))])
def test_what_is_no_array_of_experts_is_refused(text):
    with pytest.raises(UntrainableRollout, match="routed_experts"):
        experts_from_base64(text)


@pytest.mark.parametrize(
    ("shape", "expert", "reason"),
    [
        ((LAYERS, TOP_K), 4, "experts up to 4 in 2 layers, and the model has 4 in 2"),
        ((3, TOP_K), 0, "in 3 layers, and the model has 4 in 2"),
        ((LAYERS, 3), 0, "3 experts of .* tokens, and a router chooses 2"),
    ],
)
def test_experts_of_another_model_are_refused(shape, expert, reason):
    items = [
        replace(row, experts=np.full((len(row.input_ids), *shape), expert, np.int16))
        for row in random_rows(2)
    ]
    with pytest.raises(UntrainableRollout, match=reason):
        gradient_of(items, replaying(), model=tiny_mixture())


async def test_experts_come_from_a_server_through_queue_and_ranks_to_the_forward_pass():
    trained = tiny_mixture("mixtral").eval()
    served = ServedModel("m", tiny_mixture("mixtral").eval(), tokenizer(), routed_experts=True)
    with torch.no_grad():
        for param in trained.parameters():
            param.add_(0.05 * torch.randn(param.shape))
    gateway = served.gateway()
    await gateway.start()
    url = gateway.url
    client = VLLMTokenClient(url, chat_renderer(tokenizer()))
    publisher = FilesPublisher(url, clients=[client], model=trained)
    try:
        # In the names of the hub, and put into fused params there.
        await publisher.publish(trained.named_parameters(), 1)
        sampling = Sampling(max_tokens=20, seed=3)
        completion = await client.complete([Message(role="user", content="a b")], sampling)
    finally:
        await client.aclose()
        await gateway.aclose()
    assert completion.versions == (1,) * len(completion.completion_ids)
    group = RolloutGroup(key="k", trajectories=(replace(trajectory_of(completion), group="k"),))
    (row,) = group_from_bytes(group_to_bytes(group)).rows
    assert row.experts.shape == (len(row.input_ids), LAYERS, TOP_K)
    ((made,),) = plan_update([with_weight(row)], token_budget=1000, router_replay=True)
    (plan,) = plan_from_bytes(plan_to_bytes([made]))
    with torch.no_grad(), replayed(trained, plan):
        found = forward(trained, plan).logprobs.numpy()
    np.testing.assert_allclose(found, plan.behavior_logprobs, atol=1e-5)


@pytest.mark.long
def test_a_run_with_router_replay_learns_and_one_without_routers_is_refused(tmp_path):
    def train(model, out):
        save_model(model, tokenizer(), tmp_path / out / "start")
        lt.train(
            "ludic/Countdown-v0",
            model=str(tmp_path / out / "start"),
            # All rewards may be equal, and nothing is left out.
            algo=lt.grpo(filter=None),
            out=tmp_path / out / "run",
            router_replay=True,
            device="cpu",
            preflight=False,
            lora_rank=2,
            updates=1,
            groups=2,
            max_tokens=4,
            eval_episodes=2,
            final_episodes=2,
        )

    train(tiny_mixture(), "mixture")
    lines = (tmp_path / "mixture" / "run" / "metrics.jsonl").read_text().splitlines()
    (kl,) = [record["mismatch/kl"] for record in map(json.loads, lines) if "mismatch/kl" in record]
    assert abs(kl) < 1e-5
    with pytest.raises(UnsupportedModel, match="no router"):
        train(tiny_model(), "dense")
