import math

import numpy as np
import pytest
import torch

from ludic_gym.types import Sampling
from ludic_train.engine.sampling import choose, draws_of, noise_keys, uniforms

# Probabilities 0.1, 0.2, 0.3, 0.4.
LOGITS = torch.tensor([1.0, 2.0, 3.0, 4.0]).log()
ALMOST_ONE = 1 - 2.0**-52


def draws(*samplings):
    return draws_of(Sampling(**sampling) for sampling in samplings)


def draw(uniform, *, logits=LOGITS, **sampling):
    """The token and its log-prob."""
    drawn = choose(logits[None], draws(sampling), np.array([uniform]))
    return drawn.ids.item(), drawn.logprobs.item()


def mask(**sampling):
    (found,) = choose(LOGITS[None], draws(sampling), np.zeros(1)).masks
    return None if found is None else sorted(found.tolist())


def splitmix64(state):
    """The reference in plain integers (Steele, Lea & Flood 2014)."""
    z = (state + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_the_reference_generator_gives_its_published_first_number():
    assert splitmix64(0) == 0xE220A8397B1DCDAF


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63 - 1, -(2**63), 123456789])
@pytest.mark.parametrize("position", [0, 1, 1000])
def test_noise_is_the_hash_of_seed_and_position(seed, position):
    state = splitmix64(seed % 2**64) + (position - 1) * 0x9E3779B97F4A7C15
    expected = (splitmix64(state % 2**64) >> 12) * 2.0**-52
    assert uniforms(noise_keys([seed]), np.array([position])).tolist() == [expected]


def test_noise_of_neighbouring_seeds_and_positions_is_uniform_and_distinct():
    keys, positions = np.repeat(noise_keys(range(200)), 50), np.tile(np.arange(50), 200)
    noise = uniforms(keys, positions)
    assert len(np.unique(noise)) == 10_000
    # The mean of 10,000 uniforms has standard error 0.0029, a tenth's share 0.003.
    assert abs(noise.mean() - 0.5) < 0.012
    assert np.abs(np.histogram(noise, 10, (0, 1))[0] / 10_000 - 0.1).max() < 0.012


@pytest.mark.parametrize(
    ("uniform", "token"),
    [(0.0, 0), (0.09, 0), (0.11, 1), (0.29, 1), (0.31, 2), (0.59, 2), (0.61, 3)],
)
def test_the_token_is_where_the_cumulative_distribution_passes_the_noise(uniform, token):
    assert draw(uniform) == (token, pytest.approx(math.log((token + 1) / 10), abs=1e-6))


def test_the_nucleus_is_renormalised():
    # 0.4 alone does not reach 0.65, 0.4 + 0.3 does: 3/7 for token 2, 4/7 for token 3.
    assert draw(0.42, top_p=0.65) == (2, pytest.approx(math.log(3 / 7), abs=1e-6))
    assert draw(0.44, top_p=0.65) == (3, pytest.approx(math.log(4 / 7), abs=1e-6))


def test_temperature_zero_takes_the_likeliest_token_with_its_logprob_at_temperature_one():
    for uniform in (0.0, 0.5, ALMOST_ONE):
        assert draw(uniform, temperature=0, top_p=0.3) == (3, pytest.approx(math.log(0.4)))


@pytest.mark.parametrize("uniform", [0.0, 0.5, ALMOST_ONE])
def test_impossible_tokens_are_never_drawn(uniform):
    logits = torch.tensor([-math.inf, 0.0, -math.inf, -200.0, -math.inf])
    assert draw(uniform, logits=logits) == (1, 0.0)


def test_rows_do_not_know_each_other():
    rows = draws({}, {"temperature": 0.5}, {"temperature": 0.0, "top_k": 1}, {"top_p": 0.65})
    drawn = choose(LOGITS.expand(4, 4), rows, np.full(4, 0.44))
    assert drawn.ids.tolist() == [2, 2, 3, 3]
    expected = torch.tensor([0.3, 9 / 30, 0.4, 4 / 7]).log()
    torch.testing.assert_close(drawn.logprobs, expected, atol=1e-6, rtol=0)
    assert drawn.masks[:3] == [None, None, None]
    assert sorted(drawn.masks[3]) == [2, 3]


@pytest.mark.parametrize(
    ("sampling", "left"),
    [
        ({}, None),
        ({"temperature": 0.0, "top_p": 0.1}, None),
        ({"top_k": 1}, [3]),
        ({"top_k": 3}, [1, 2, 3]),
        ({"top_k": 2**30}, [0, 1, 2, 3]),
        # Half of 0.4 is 0.2, which is not below itself.
        ({"min_p": 0.51}, [2, 3]),
        ({"min_p": 0.49}, [1, 2, 3]),
        # At temperature 0.5, 9 is more than half of 16 and 4 is not.
        ({"min_p": 0.49, "temperature": 0.5}, [2, 3]),
        # Of 0.4 and 0.3, the first is 4/7 = 0.571 of both.
        ({"top_k": 2, "top_p": 0.57}, [3]),
        ({"top_k": 2, "top_p": 0.58}, [2, 3]),
        ({"min_p": 0.7, "top_p": 0.57}, [3]),
        ({"min_p": 0.7, "top_p": 0.58, "top_k": 1}, [3]),
    ],
)
def test_min_p_then_top_k_then_top_p_leave_tokens_out(sampling, left):
    assert mask(**sampling) == left


def test_of_equal_logits_top_k_keeps_as_many_as_it_says():
    (found,) = choose(torch.zeros(1, 9), draws({"top_k": 4}), np.zeros(1)).masks
    assert len(found) == 4


def test_frequencies_follow_the_distribution():
    size = 20_000
    noise = uniforms(noise_keys(range(size)), np.zeros(size, np.int64))
    drawn = choose(LOGITS.expand(size, 4), draws(*[{}] * size), noise)
    shares = torch.bincount(drawn.ids, minlength=4) / size
    # Four standard errors of a share of 0.4 are 0.014.
    torch.testing.assert_close(shares, LOGITS.exp() / 10, atol=0.014, rtol=0)


def test_logits_that_are_not_numbers_give_a_logprob_that_is_none():
    assert math.isnan(draw(0.5, logits=torch.full((4,), math.nan))[1])
