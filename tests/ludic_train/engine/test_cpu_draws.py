"""Tokens drawn by the compiled kernels, beside the same formulas in float64."""

import math

import numpy as np
import pytest
import torch

from ludic_gym.types import Sampling
from ludic_train.engine import cpu_kernels
from ludic_train.engine.cpu_kernels import kernels_for
from ludic_train.engine.sampling import choose, draws_of

pytestmark = pytest.mark.skipif(not cpu_kernels._compiler(), reason="there is no C++ compiler")
# Of a row of random logits: of rounding in a block's sum of floats, and of a log-prob.
ERROR = 2e-6
# A vector, a block and more, and what is left over.
SIZES = [1, 7, 8, 33, 511, 512, 513, 5000, 70_001]
CUTS = [
    {"top_p": 0.9},
    {"top_p": 1e-6},
    {"min_p": 0.05},
    {"min_p": 1e-20},
    {"top_k": 1},
    {"top_k": 40},
    {"top_k": 2**40},
    {"top_k": 40, "top_p": 0.9},
    {"top_k": 3000, "top_p": 0.99, "min_p": 1e-5},
    {"top_p": 0.7, "min_p": 0.01},
]


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def kernels(request):
    return kernels_for(torch.zeros(1, dtype=request.param), 64)


@pytest.fixture
def rows(kernels):
    """`rows(number, size)`: random logits of the kernels' type, and a number in [0, 1) for each."""
    generator, noise = torch.Generator().manual_seed(0), np.random.default_rng(0)

    def make(number, size):
        logits = 4 * torch.randn(number, size, generator=generator)
        return logits.to(kernels.dtype), noise.random(number)

    return make


def left(logits, sampling):
    """The tokens of a row that are not left out, by the definition in `choose`."""
    powers = (logits.double() - logits.double().max()).numpy() / np.float32(sampling.temperature)
    order = np.argsort(-powers, kind="stable")
    weights = np.exp(powers[order])
    number = np.sum(weights >= max(float(np.float32(sampling.min_p)), 1e-300))
    number = min(number, sampling.top_k or number)
    if sampling.top_p < 1:
        before = np.cumsum(weights[:number]) - weights[:number]
        number = np.sum(before < np.float32(sampling.top_p) * weights[:number].sum())
    return sorted(order[:number])


def assert_drawn(drawn, logits, uniform, temperature, inside=None):
    """Assert that the tokens are where the cumulative distribution passes, with its log-probs."""
    scaled = logits.double() / np.float32(temperature)
    if inside is not None:
        scaled = scaled.masked_fill(~inside, -math.inf)
    exact, ids = scaled.log_softmax(-1), drawn.ids[:, None]
    probs, point = exact.exp(), torch.from_numpy(uniform)
    own, after = probs.gather(1, ids)[:, 0], probs.cumsum(-1).gather(1, ids)[:, 0]
    assert (own > 0).all()
    assert (after - own <= point + ERROR).all()
    assert (point <= after + ERROR).all()
    expected = exact.gather(1, ids)[:, 0]
    torch.testing.assert_close(drawn.logprobs.double(), expected, atol=ERROR, rtol=ERROR)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("size", SIZES)
def test_a_token_is_where_the_cumulative_distribution_passes(size, temperature, kernels, rows):
    logits, uniform = rows(50, size)
    logits[:, : size // 3] = -math.inf
    uniform[:2] = 0, 1 - 2.0**-52
    draws = draws_of([Sampling(temperature=temperature)] * 50)
    drawn = choose(logits, draws, uniform, kernels)
    assert drawn.masks == [None] * 50
    assert_drawn(drawn, logits, uniform, temperature)


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("size", [1, 33, 513, 5000])
@pytest.mark.parametrize("temperature", [0.3, 1.5])
def test_tokens_are_left_out_in_the_order_of_their_probabilities(
    temperature, size, cut, kernels, rows
):
    logits, uniform = rows(6, size)
    logits[:, size // 2 + 1 :: 7] = -math.inf
    uniform[:2] = 0, 1 - 2.0**-52
    sampling = Sampling(temperature=temperature, **cut)
    drawn = choose(logits, draws_of([sampling] * 6), uniform, kernels)
    inside = torch.zeros(logits.shape, dtype=torch.bool)
    for row, mask in enumerate(drawn.masks):
        assert mask.tolist() == left(logits[row], sampling)
        inside[row, mask] = True
    assert_drawn(drawn, logits, uniform, temperature, inside)


@pytest.mark.parametrize(
    ("cut", "number"), [({"top_k": 3}, 3), ({"top_p": 0.5}, 1000), ({"min_p": 1.0}, 2000)]
)
def test_of_equal_logits_the_first_are_kept(cut, number, kernels):
    logits = torch.zeros(1, 2000, dtype=kernels.dtype)
    (mask,) = choose(logits, draws_of([Sampling(**cut)]), np.zeros(1), kernels).masks
    assert mask.tolist() == list(range(number))


def test_logits_of_any_size_can_be_left_out(kernels):
    logits = torch.tensor([[5e37, -3e38, 1e38, -5e37, 5e37]], dtype=kernels.dtype)
    draws = draws_of([Sampling(top_k=3)])
    drawn = choose(logits, draws, np.array([0.5]), kernels)
    assert (drawn.ids.item(), drawn.logprobs.item()) == (2, 0.0)
    assert drawn.masks[0].tolist() == [0, 2, 4]


@pytest.mark.parametrize("size", SIZES)
def test_temperature_0_takes_the_first_of_the_likeliest(size, kernels, rows):
    logits, uniform = rows(5, size)
    logits[:, size // 2] = logits[:, -1] = 30.0
    draws = draws_of([Sampling(temperature=0, top_k=2)] * 5)
    drawn = choose(logits, draws, uniform, kernels)
    assert drawn.ids.tolist() == [size // 2] * 5
    assert drawn.masks == [None] * 5
    expected = logits.double().log_softmax(-1)[:, size // 2]
    torch.testing.assert_close(drawn.logprobs.double(), expected, atol=ERROR, rtol=0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("fields", [{}, {"temperature": 0}, *CUTS[:5]], ids=str)
def test_the_log_prob_of_a_row_that_is_not_finite_is_nan(size, wrong, fields, kernels, rows):
    draws = draws_of([Sampling(**fields)] * 3)
    for place in {0, size // 2, size - 1}:
        logits, uniform = rows(3, size)
        logits[1, place] = wrong
        drawn = choose(logits, draws, uniform, kernels)
        assert drawn.logprobs.isnan().tolist() == [False, True, False]
        assert 0 <= drawn.ids[1] < size


@pytest.mark.parametrize("fields", [{}, {"temperature": 0}, {"top_k": 3}], ids=str)
def test_a_row_in_which_all_is_impossible_has_no_log_prob(fields, kernels):
    logits = torch.full((1, 600), -math.inf, dtype=kernels.dtype)
    drawn = choose(logits, draws_of([Sampling(**fields)]), np.array([0.5]), kernels)
    assert drawn.logprobs.isnan().all()


def test_a_row_does_not_depend_on_its_batch_or_on_threads(kernels, rows):
    logits, uniform = rows(9, 30_000)
    samplings = [Sampling(), Sampling(top_k=5), Sampling(temperature=0.5), Sampling(temperature=0)]
    draws = draws_of((samplings * 3)[:9])
    together = choose(logits, draws, uniform, kernels)
    for i in range(9):
        alone = choose(logits[i : i + 1], draws[i : i + 1], uniform[i : i + 1], kernels)
        assert alone.ids.equal(together.ids[i : i + 1])
        assert alone.logprobs.equal(together.logprobs[i : i + 1])
        np.testing.assert_equal(alone.masks[0], together.masks[i])
        assert (together.masks[i] is None) == (i % 4 != 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    by_two = choose(logits, draws, uniform, kernels)
    torch.set_num_threads(threads)
    assert by_two.ids.equal(together.ids)
    assert by_two.logprobs.equal(together.logprobs)
    np.testing.assert_equal(by_two.masks, together.masks)


def test_logits_of_another_type_are_drawn_from_by_torch(kernels, rows):
    logits, uniform = rows(3, 100)
    draws = draws_of([Sampling()] * 3)
    found = choose(logits.double(), draws, uniform, kernels)
    expected = choose(logits.double(), draws, uniform)
    assert found.ids.equal(expected.ids)
    assert found.logprobs.equal(expected.logprobs)
