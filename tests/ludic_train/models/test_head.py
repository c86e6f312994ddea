import math
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ludic_gym.errors import ConfigError
from ludic_train.models import head as head_module
from ludic_train.models.head import SamplingMasks, action_logprobs
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer


@pytest.fixture(scope="module")
def model():
    tokenizer = make_tokenizer(["a b c"])
    return make_tiny_model(tokenizer, hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1)


ROWS = torch.tensor([[5, 9, 7, 3, 8, 2], [4, 6, 1, 2, 0, 0]])
ROW = torch.tensor([0, 0, 0, 1, 1])
COLUMN = torch.tensor([2, 4, 5, 1, 3])
TEMPERATURE = torch.tensor([1.0, 1.0, 1.0, 0.5, 0.5])


def reference(model):
    """log softmax(logits[t - 1] / T) of the token at t, from the whole logits, row by row."""
    found = []
    for row, column, temperature in zip(ROW, COLUMN, TEMPERATURE, strict=True):
        tokens = ROWS[row][: 6 if row == 0 else 4]
        logits = model(tokens[None]).logits[0, column - 1] / temperature
        found.append(logits.log_softmax(-1))
    return torch.stack(found)


def through_autograd(logits, targets):
    """The same numbers by operations that torch differentiates itself."""
    logprobs = logits.log_softmax(-1)
    return logprobs.gather(-1, targets[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(-1)


@pytest.mark.parametrize("used", [(1.0, 0.0), (0.0, 1.0), (0.7, -0.3)])
def test_gradients_are_those_of_the_same_formulae_through_autograd(used):
    torch.manual_seed(0)
    targets = torch.tensor([3, 0, 6])
    gradients = []
    for function in (head_module.logits_logprobs, through_autograd):
        torch.manual_seed(1)
        logits = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
        weights = torch.randn(2, 3, dtype=torch.float64)
        found = zip(used, weights, function(logits, targets), strict=True)
        sum((share * w * value).sum() for share, w, value in found if share).backward()
        gradients.append(logits.grad)
    torch.testing.assert_close(*gradients, atol=1e-15, rtol=1e-13)


@pytest.mark.parametrize(("is_trained", "products"), [(True, 3), (False, 2)])
def test_the_gradient_of_a_frozen_head_is_not_computed(is_trained, products):
    hidden = torch.randn(4, 8, dtype=torch.bfloat16, requires_grad=True)
    head = torch.nn.Linear(8, 16, bias=False, dtype=torch.bfloat16).requires_grad_(is_trained)
    with FlopCounterMode(display=False) as counter:
        targets = torch.zeros(4, dtype=torch.int64)
        out = head_module.chunk_logprobs(head, None, 64, hidden, targets, torch.ones(4), None)
        out[0].sum().backward()
    assert counter.get_total_flops() == products * 2 * 4 * 8 * 16


def test_what_padding_holds_does_not_matter(model):
    other = ROWS.clone()
    other[1, 4:] = 77
    first = action_logprobs(model, ROWS, ROW, COLUMN, TEMPERATURE)
    second = action_logprobs(model, other, ROW, COLUMN, TEMPERATURE)
    assert torch.equal(first.logprobs, second.logprobs)


def bfloat16_model():
    tokenizer = make_tokenizer(["a b c"])
    return make_tiny_model(tokenizer, hidden_size=64, num_layers=1).bfloat16()


def float32_head(model):
    """Log-probs at the temperatures from 16-bit hidden states, everything after them float32."""
    hidden = model.model(ROWS)[0][ROW, COLUMN - 1].float()
    logits = hidden @ model.lm_head.weight.float().T / TEMPERATURE[:, None]
    return logits.log_softmax(-1).gather(1, ROWS[ROW, COLUMN][:, None])[:, 0]


def test_of_16_bit_params_the_logits_are_float32():
    model = bfloat16_model()
    out = action_logprobs(model, ROWS, ROW, COLUMN, TEMPERATURE)
    expected = float32_head(model)
    assert out.logprobs.dtype == out.entropy.dtype == torch.float32
    torch.testing.assert_close(out.logprobs, expected, atol=2e-6, rtol=0)
    rounded = model(ROWS).logits[ROW, COLUMN - 1].float() / TEMPERATURE[:, None]
    rounded = rounded.log_softmax(-1).gather(1, ROWS[ROW, COLUMN][:, None])[:, 0]
    assert float((rounded - expected).detach().abs().max()) > 1e-3


def test_gradients_of_16_bit_params_are_those_of_the_float32_logits_rounded_once():
    model, other = bfloat16_model(), bfloat16_model()
    action_logprobs(model, ROWS, ROW, COLUMN, TEMPERATURE).logprobs.sum().backward()
    float32_head(other).sum().backward()
    for (name, a), b in zip(model.named_parameters(), other.parameters(), strict=True):
        assert a.grad.dtype == torch.bfloat16
        scale = b.grad.float().norm()
        assert float((a.grad.float() - b.grad.float()).norm() / scale) < 0.02, name


# The tokens that those at (ROW, COLUMN) were drawn from: 7, 8, 2, 6, 2. None: from all.
MASKS = ([9, 7], None, [2, 3, 7], [5, 6, 11], [2])


def masked_reference(model):
    """Log-prob and entropy of each token among those of its mask, from whole logits."""
    for whole, mask, target in zip(reference(model), MASKS, [7, 8, 2, 6, 2], strict=True):
        among = whole if mask is None else whole[mask].log_softmax(-1)
        own = among[target if mask is None else mask.index(target)]
        yield own, -(among.exp() * among).sum()


@pytest.mark.parametrize("chunk", [1, 2, 3, 1024])
def test_log_probs_and_gradients_are_renormalised_over_the_masks(model, chunk, monkeypatch):
    monkeypatch.setattr(head_module, "CHUNK_TOKENS", chunk)
    sizes = torch.tensor([0 if mask is None else len(mask) for mask in MASKS])
    masks = SamplingMasks(sizes, torch.tensor([i for mask in MASKS if mask for i in mask]))
    out = action_logprobs(model, ROWS, ROW, COLUMN, TEMPERATURE, masks=masks)
    own, entropy = map(torch.stack, zip(*masked_reference(model), strict=True))
    torch.testing.assert_close(out.logprobs, own, atol=1e-5, rtol=0)
    torch.testing.assert_close(out.entropy, entropy, atol=1e-5, rtol=0)
    weight = torch.tensor([1.0, -0.5, 2.0, 0.7, 3.0])
    params = list(model.parameters())
    found = torch.autograd.grad((weight * out.logprobs + 0.3 * out.entropy).sum(), params)
    expected = torch.autograd.grad((weight * own + 0.3 * entropy).sum(), params)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def kept_for_backward(tokens, vocabulary, masks=None, top=None):
    """Bytes that the head keeps for the backward pass, its weight aside."""
    head = torch.nn.Linear(8, vocabulary, bias=False)
    hidden = torch.randn(tokens, 8, requires_grad=True)
    storages = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() != head.weight.untyped_storage().data_ptr():
            storages[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    targets = torch.zeros(tokens, dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        of_chunk = partial(head_module.chunk_logprobs, head, None, 100)
        out = head_module.chunked(
            of_chunk, hidden, targets, torch.ones(tokens), masks, top, is_kept=False
        )
    assert out[0].requires_grad
    return sum(size for size, _ in storages.values())


def test_what_is_kept_for_the_backward_pass_does_not_grow_with_the_vocabulary(monkeypatch):
    monkeypatch.setattr(head_module, "CHUNK_TOKENS", 16)
    small, large = kept_for_backward(128, 100), kept_for_backward(128, 10_000)
    assert large == small
    assert large < 0.01 * 128 * 10_000 * 4
    # Of the masks, it keeps 4 of 8 bytes' ids per token and their number.
    masks = SamplingMasks(torch.full((128,), 4), torch.arange(4).repeat(128))
    assert kept_for_backward(128, 10_000, masks) <= large + 128 * (4 + 1) * 8
    # Of further tokens, their ids.
    top = torch.arange(4).repeat(128, 1)
    assert kept_for_backward(128, 10_000, top=top) <= large + 128 * 4 * 8


def top_through_autograd(logits, ids):
    """Log-probs of the ids and of all others together, by operations that torch differentiates."""
    logprobs = logits.log_softmax(-1)
    others = torch.ones_like(logits, dtype=torch.bool).scatter(-1, ids, False)
    rest = logprobs.masked_fill(~others, -torch.inf).logsumexp(-1, keepdim=True)
    return torch.cat([logprobs.gather(-1, ids), rest], -1)


@pytest.mark.parametrize("used", [(0.0, 0.0, 1.0), (0.7, -0.3, 1.1), (0.7, 0.0, 0.4)])
def test_gradients_of_further_tokens_are_those_of_the_same_formulae_through_autograd(used):
    torch.manual_seed(0)
    # The target of the first row is among its further tokens, that of the second is not.
    targets, ids = torch.tensor([3, 0, 6]), torch.tensor([[3, 5], [1, 2], [0, 6]])
    weights = [torch.randn(3), torch.randn(3), torch.randn(3, 3)]
    gradients = []
    for apply in (
        head_module.logits_logprobs,
        lambda z, y, ids: (*through_autograd(z, y), top_through_autograd(z, ids)),
    ):
        torch.manual_seed(1)
        logits = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
        found = zip(used, weights, apply(logits, targets, ids), strict=True)
        sum((share * w * value).sum() for share, w, value in found if share).backward()
        gradients.append(logits.grad)
    torch.testing.assert_close(*gradients, atol=1e-14, rtol=1e-12)


def test_others_of_hardly_any_probability_keep_their_digits():
    # p = (1, e^-30, e^-31) / (1 + ...): 1 less the first would be 0 in float32.
    logits = torch.tensor([[0.0, -30.0, -31.0]], requires_grad=True)
    *_, found = head_module.logits_logprobs(logits, torch.tensor([0]), torch.tensor([[0]]))
    assert found[0, 1].item() == pytest.approx(-30 + math.log1p(math.exp(-1)), abs=1e-5)
    found[0, 1].backward()
    # Shares of e^-30 and e^-31 among the others: 1 / (1 + 1/e) and 1 / (1 + e).
    assert logits.grad[0].tolist() == pytest.approx([-1.0, 0.7310586, 0.2689414], abs=1e-6)


def test_with_all_tokens_named_nothing_is_left_for_others():
    logits = torch.randn(2, 4, requires_grad=True)
    ids = torch.tensor([[2, 0, 1, 3], [3, 1, 0, 2]])
    *_, found = head_module.logits_logprobs(logits, torch.tensor([1, 2]), ids)
    assert found[:, 4].tolist() == [-torch.inf, -torch.inf]
    found[:, :4].sum().backward()
    expected = 1 - 4 * logits.detach().softmax(-1)
    torch.testing.assert_close(logits.grad, expected)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("chunk", [1, 2, 3, 1024])
def test_the_model_chooses_its_most_likely_tokens_or_scores_given_ones(
    model, chunk, masked, monkeypatch
):
    monkeypatch.setattr(head_module, "CHUNK_TOKENS", chunk)
    chosen = MASKS if masked else [None] * 5
    sizes = torch.tensor([0 if mask is None else len(mask) for mask in chosen])
    masks = SamplingMasks(sizes, torch.tensor([i for m in chosen if m for i in m]).long())
    whole = reference(model)
    # Not -inf, of which autograd makes NaN.
    left_out = torch.zeros_like(whole, dtype=torch.bool)
    for row, mask in enumerate(chosen):
        left_out[row, [i for i in range(whole.shape[1]) if mask and i not in mask]] = True
    whole = (whole - 1e4 * left_out).log_softmax(-1)
    own = action_logprobs(model, ROWS, ROW, COLUMN, TEMPERATURE, masks=masks, top=1)
    assert torch.equal(own.top_ids[:, 0], whole.argmax(-1))
    # The target of a row is among its tokens or not; the last mask holds one alone.
    for ids in (own.top_ids, torch.tensor([[9, 7], [1, 0], [7, 3], [6, 5], [2, 4]])):
        found = action_logprobs(model, ROWS, ROW, COLUMN, TEMPERATURE, masks=masks, top=ids)
        expected = top_through_autograd(whole, ids)
        known = expected > -1e3
        assert torch.equal(found.top_logprobs == -torch.inf, ~known)
        assert masked or known.all()
        weight = torch.randn(known.sum())
        values, params = (found.top_logprobs[known], expected[known]), list(model.parameters())
        torch.testing.assert_close(*values, atol=1e-5, rtol=0)
        gradients = [
            torch.autograd.grad((weight * each).sum(), params, retain_graph=True) for each in values
        ]
        torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


def test_more_tokens_than_the_vocabulary_has_are_refused(model):
    with pytest.raises(ConfigError, match="the 100000 most likely tokens of a vocabulary of"):
        action_logprobs(model, ROWS, ROW, COLUMN, TEMPERATURE, top=100_000)


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("used", [(1.0, 0.0), (0.0, 1.0), (0.7, -0.3)])
def test_a_plain_head_has_the_gradients_of_the_general_one(used, is_kept, monkeypatch):
    monkeypatch.setattr(head_module, "CHUNK_TOKENS", 3)
    monkeypatch.setattr(head_module, "CPU_PART", 24)
    torch.manual_seed(0)
    head = torch.nn.Linear(4, 12, bias=False)
    hidden = torch.randn(8, 4, requires_grad=True)
    targets, temperature = torch.arange(8), torch.tensor([1.0, 0.5, 2.0, 1.0] * 2)
    # The tokens 0 to 3 and the target, or all of them.
    sizes = torch.tensor([0, 0, 0, 0, 5, 5, 5, 5])
    masks = SamplingMasks(sizes, torch.tensor([i for y in range(4, 8) for i in (0, 1, 2, 3, y)]))
    inputs = hidden, head.weight, targets, temperature, masks
    plain = head_module.plain_logprobs(*inputs, is_kept=is_kept)
    general = head_module.chunk_logprobs(head, None, 64, hidden, targets, temperature, masks)
    gradients = [
        torch.autograd.grad(
            (used[0] * out[0] * targets.sin() + used[1] * out[1]).sum(), (hidden, head.weight)
        )
        for out in (plain, general)
    ]
    torch.testing.assert_close(plain, general[:2], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-5)


def test_the_gradient_of_a_16_bit_head_is_added_up_in_float32(monkeypatch):
    # 512 chunks of 2 tokens whose gradients are all equal: bfloat16 has 8 digits, and after 256
    # of them it would take no more.
    monkeypatch.setattr(head_module, "CHUNK_TOKENS", 2)
    hidden = torch.ones(1024, 1, dtype=torch.bfloat16)
    weight = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    targets = torch.zeros(1024, dtype=torch.int64)
    out, _ = head_module.plain_logprobs(hidden, weight, targets, torch.ones(1024))
    out.sum().backward()
    # p is 1/2 for both tokens: 1024 (1 - 1/2) and 1024 (0 - 1/2).
    assert weight.grad.flatten().tolist() == [512.0, -512.0]


def test_entropies_are_left_out_where_nothing_reads_them(model):
    whole = action_logprobs(model, ROWS, ROW, COLUMN, TEMPERATURE)
    out = action_logprobs(model, ROWS, ROW, COLUMN, TEMPERATURE, entropy=False)
    assert out.entropy.shape == (0,)
    assert torch.equal(out.logprobs, whole.logprobs)
