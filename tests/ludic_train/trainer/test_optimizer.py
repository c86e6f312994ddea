"""Moments of 8 bits: their memory, and how far they are from those of 32."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ludic_train.trainer.optimizer import (
    AdamW8bit,
    moment_bytes,
    quantized,
    restored,
    scale_shape,
)

SETTINGS = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def levels(signed):
    """The numbers of the 256 codes, in a block whose largest number is 1."""
    codes = torch.arange(256, dtype=torch.uint8)[None]
    return restored(codes, torch.ones(1, 1), signed=signed)[0]


def test_codes_stand_for_256_shares():
    for signed in (True, False):
        assert levels(signed).unique().tolist() == levels(signed).tolist()
        assert float(levels(signed)[-1]) == 1.0
    # The middle of 0.1 to 1, a millionth of it; signed, each has its opposite.
    assert float(levels(True)[128]) == pytest.approx(0.55e-6)
    assert float(levels(True)[126]) == pytest.approx(-0.55e-6)
    assert levels(False)[:3].tolist() == pytest.approx([0.0, 0.325e-6, 0.775e-6])


@pytest.mark.parametrize("signed", [True, False])
def test_every_code_comes_back(signed):
    codes, scale = quantized(levels(signed)[None], signed=signed)
    assert codes[0].tolist() == (list(range(256)) if signed else [1, *range(1, 256)])
    assert scale.tolist() == [[1.0]]


@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 600), st.booleans())
@settings(max_examples=30, deadline=None)
def test_no_number_is_further_off_than_half_a_gap(seed, rows, width, signed):
    values = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) ** 3
    values = values if signed else values.abs()
    codes, scale = quantized(values, signed=signed)
    found = restored(codes, scale, signed=signed)
    # By looking for the nearest of all levels.
    whole = scale.repeat_interleave(256, 1)[:, :width]
    nearest = ((values / whole)[..., None] - levels(signed)).abs().amin(-1) * whole
    # Squares are never rounded to 0: the lowest level is 3.25e-7 of the largest.
    assert ((found - values).abs() <= nearest * 1.001 + 4e-7 * whole).all()
    assert signed or (found > 0).all()


def trajectory(make, shape=(40, 300), steps=30):
    """A param after each of some steps on noisy gradients."""
    generator = torch.Generator().manual_seed(0)
    param = nn.Parameter(torch.randn(shape, generator=generator))
    optimizer = make([param])
    for _ in range(steps):
        param.grad = param.detach() + torch.randn(shape, generator=generator)
        optimizer.step()
    return param.detach(), optimizer


def test_steps_are_near_those_of_32_bits():
    start, _ = trajectory(lambda p: AdamW8bit(p, **SETTINGS), steps=0)
    exact, _ = trajectory(lambda p: torch.optim.AdamW(p, **SETTINGS))
    found, _ = trajectory(lambda p: AdamW8bit(p, **SETTINGS))
    assert (found - exact).norm() < 0.03 * (exact - start).norm()
    assert not torch.equal(found, exact)


def test_params_of_few_numbers_take_exactly_the_steps_of_32_bits():
    exact, _ = trajectory(lambda p: torch.optim.AdamW(p, **SETTINGS), shape=(7,))
    found, _ = trajectory(lambda p: AdamW8bit(p, **SETTINGS), shape=(7,))
    torch.testing.assert_close(found, exact, rtol=1e-6, atol=1e-7)


def test_a_small_gradient_beside_a_large_one_makes_no_large_step():
    param = nn.Parameter(torch.zeros(20, 256))
    optimizer = AdamW8bit([param], **SETTINGS)
    for _ in range(5):
        param.grad = torch.full_like(param, 1e-5)
        param.grad[:, 0] = 1.0
        optimizer.step()
    # 1e-10 of the largest square is below the lowest code; divided by 0, the step would be 100 lr.
    assert param.detach().abs().max() <= 5 * 1.01 * SETTINGS["lr"]


def test_both_moments_take_a_quarter_of_the_memory():
    _, optimizer = trajectory(lambda p: AdamW8bit(p, **SETTINGS), steps=1)
    (param,), (state,) = optimizer.param_groups[0]["params"], optimizer.state.values()
    found = sum(t.nbytes for n, t in state.items() if n != "step")
    # 12,000 codes, and 40 rows of 2 scales, twice.
    assert found == moment_bytes(param) == 2 * (12_000 + 4 * 40 * 2)
    assert scale_shape(param) == (40, 2)


def test_steps_do_not_depend_on_how_many_rows_are_computed_at_a_time(monkeypatch):
    whole, _ = trajectory(lambda p: AdamW8bit(p, **SETTINGS), steps=3)
    monkeypatch.setattr("ludic_train.trainer.optimizer.CHUNK", 700)
    cut, _ = trajectory(lambda p: AdamW8bit(p, **SETTINGS), steps=3)
    assert torch.equal(cut, whole)
