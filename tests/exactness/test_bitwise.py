"""With `exact`, the local engine's log-probs are those of the trainer to the bit."""

import json

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from trajectories import rollout
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

import ludic_train as lt
from ludic_gym.errors import ConfigError
from ludic_gym.types import Sampling
from ludic_train.engine.batch import Engine, Request
from ludic_train.errors import UnsupportedModel
from ludic_train.models.exact import is_exact, make_exact
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.rows import trajectory_from
from ludic_train.runs.machine import Machine
from ludic_train.trainer.microbatches import plan_update
from ludic_train.trainer.step import forward

LLAMA = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.1,
    "bos_token_id": None,
    "eos_token_id": 2,
}
# Fewer rows than a product of matrices needs, more than a block of attention, and the usual.
BATCHES = (2, 7, 64)


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(["1 2 X\n4 O 6"])


def llama(**changes):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**LLAMA, **changes})).eval()


def adapted(model):
    config = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    return get_peft_model(model, config).eval()


LONGEST = "llama, tied, with biases"
MODELS = {
    LONGEST: lambda tokenizer: llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    "llama with adapters": lambda tokenizer: adapted(llama(num_hidden_layers=1)),
    "tiny": lambda tokenizer: make_tiny_model(tokenizer).eval(),
}


def requests(count, **sampling):
    """Requests of groups of one to three, with prompts of 1 to 99 tokens."""
    rng = np.random.default_rng(0)
    made = []
    for i in range(count):
        prompt = tuple(rng.integers(3, 250, int(rng.integers(1, 100))).tolist())
        for member in range(1 + i % 3):
            known = Sampling(seed=3 * i + member, max_tokens=1 + int(rng.integers(20)), **sampling)
            made.append(Request(prompt_ids=prompt, sampling=known, policy_version=0))
    return made


def sampled(engine, made):
    ended = {}
    for each in made:
        engine.add(each)
    while not engine.is_idle:
        ended.update(engine.advance())
    return [ended[each] for each in made]


def differences(model, completions, budget):
    """Trainer's log-prob less the engine's, of all tokens."""
    items = [row for each in completions for row in trajectory_from(rollout((each,))).rows]
    found = []
    with torch.no_grad():
        for part in plan_update(items, token_budget=budget, packing=False)[0]:
            known = torch.from_numpy(part.behavior_logprobs)
            found.append(forward(model, part).logprobs - known)
    return torch.cat(found)


@pytest.mark.long
@pytest.mark.parametrize(
    "make",
    [pytest.param(m, id=n, marks=[pytest.mark.slow] * (n == LONGEST)) for n, m in MODELS.items()],
)
def test_no_bit_differs_whatever_the_batch(make, tokenizer):
    model = make(tokenizer)
    make_exact(model)
    made = requests(16, top_p=0.9, temperature=0.8)
    batches = {
        size: sampled(Engine(model, tokenizer, max_batch_size=size), made) for size in BATCHES
    }
    for completions in batches.values():
        assert [c.completion_ids for c in completions] == [c.completion_ids for c in batches[2]]
        assert [c.logprobs for c in completions] == [c.logprobs for c in batches[2]]
    for budget in (200, 4096):
        found = differences(model, batches[2], budget)
        assert len(found) > 250
        assert found.abs().max() == 0


def test_without_it_most_bits_are_others(tokenizer):
    model = make_tiny_model(tokenizer).eval()
    completions = sampled(Engine(model, tokenizer, max_batch_size=21), requests(24))
    found = differences(model, completions, 4096)
    assert (found != 0).float().mean() > 0.3
    assert found.abs().max() < 1e-5


def test_cached_rows_that_move_keep_their_bits(tokenizer):
    model = make_tiny_model(tokenizer).eval()
    make_exact(model)
    engine, made = Engine(model, tokenizer, max_batch_size=21), requests(24)
    first = sampled(engine, made)
    # The cache is as the first batch left it, and rows come in another order.
    again = sampled(engine, made[::-1])[::-1]
    assert [c.logprobs for c in again] == [c.logprobs for c in first]


def test_gradients_are_those_of_the_usual_attention(tokenizer):
    plain, exact = (make_tiny_model(tokenizer).eval() for _ in range(2))
    make_exact(exact)
    completions = sampled(Engine(exact, tokenizer, max_batch_size=8), requests(8))
    items = [row for each in completions for row in trajectory_from(rollout((each,))).rows]
    (part,) = plan_update(items, token_budget=10**5, packing=False)[0]
    gradients = [
        torch.autograd.grad(forward(model, part).logprobs.mean(), list(model.parameters()))
        for model in (plain, exact)
    ]
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


def test_models_that_it_was_not_proven_for_are_refused_by_name():
    shape = {name: value for name, value in LLAMA.items() if name != "initializer_range"}
    with pytest.raises(UnsupportedModel, match=r"proven for llama and qwen3 .* not for 'qwen2'"):
        make_exact(Qwen2ForCausalLM(Qwen2Config(**shape)))
    low = llama().bfloat16()
    with pytest.raises(UnsupportedModel, match=r"params are torch\.bfloat16 on cpu: .* float32"):
        make_exact(low)
    assert not is_exact(low)


@pytest.mark.parametrize("options", [{"engine": ("vllm",)}, {"queue": "file://x"}])
def test_other_engines_than_the_local_one_are_refused(options):
    with pytest.raises(ConfigError, match="exact is for the local engine of one process"):
        Machine(exact=True, **options)


@pytest.mark.long
def test_a_run_has_ratios_of_exactly_1_and_saves_a_model_like_any_other(tmp_path):
    out, small = tmp_path / "run", {"updates": 3, "groups": 4, "group_size": 4, "minibatches": 1}
    lt.train(
        "ludic/TicTacToe-v0",
        out=out,
        exact=True,
        algo=lt.grpo(filter=None),
        demonstrator="random",
        demonstrations=150,
        sft_updates=1,
        top_p=0.9,
        max_tokens=4,
        eval_episodes=4,
        final_episodes=4,
        **small,
    )
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    ratios = [
        (line["mismatch/ratio"], line["mismatch/ratio_max"], line["mismatch/kl_at_lag_0"])
        for line in lines
        if "mismatch/kl_at_lag_0" in line
    ]
    assert ratios == [(1.0, 1.0, 0.0)] * 3
    saved = json.loads((out / "model" / "config.json").read_text())
    assert "ludic" not in json.dumps(saved)
    assert not is_exact(lt.load_model(out / "model")[0])
