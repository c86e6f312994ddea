"""`benchmarks/expected.py`: figures that can be worked out by hand."""

import expected as program
import pytest

from ludic_train.trainer.memory_estimate import Estimate

GIB = 2**30
SPEEDS = program.Speeds(products=600e12, attention=300e12)


def test_the_published_mfu_of_another_trainer_follows_from_its_tokens_per_second():
    # Qwen3-0.6B has 596M params; prime-rl reports 11,896 tokens/s and 11.1 % for rows of 16,384.
    assert program.mfu_of(596_049_920, program.attended("0.6B", 16_384), 11_896) == pytest.approx(
        0.111, abs=5e-4
    )


def of_two_ranks(gib, attention_flops=0.0):
    """An estimate of 1B params: so many GiB of params and gradients, twice as many of moments."""
    sizes = {"params": gib, "gradients": gib, "optimizer": 2 * gib, "activations": 4, "gathered": 2}
    sizes = {name: size * GIB for name, size in sizes.items()}
    return Estimate(
        params=10**9,
        trained=10**9,
        bytes=sizes,
        flops=40e12 + attention_flops,
        attention_flops=attention_flops,
    )


def made(gib, cards, attention=0.0):
    """attention: operations per token in a forward pass, of 4.5 in all."""
    return program.expected(
        of_two_ranks(gib, 4.5 * attention * 10_000 / 2),
        1 * GIB,
        cards,
        micro_tokens=10_000,
        forward_attention=attention,
        speeds=SPEEDS,
    )


def test_time_is_that_of_products_and_attention():
    # 80 TFLOP at 600, 1.5 times: 0.2 s for 10,000 tokens. 6 x 1e9 x 50,000 = 300 of 989 TFLOP/s.
    found = made(2, 1)
    assert found.tokens_per_second == pytest.approx(50_000)
    assert found.mfu == pytest.approx(300 / 989)
    # 4.5 x 1e9 x 10,000 = 45 TFLOP at 300: 0.15 s more. (6 + 3) x 1e9 x 10,000 / 0.35 s.
    found = made(2, 1, attention=1e9)
    assert found.tokens_per_second == pytest.approx(10_000 / 0.35)
    assert found.mfu == pytest.approx(90 / 0.35 / 989)


def test_options_are_those_that_make_it_fit():
    # On one card 2 x (2 + 2 + 4) + 6 GiB; of 80, 8 % stay free.
    assert (made(2, 1).gib, made(2, 1).options) == (22, "")
    # 2 x (9 + 9 + 18) + 6 = 78 > 73.6; with 1 GiB of moments 2 x 18 + 1 + 6 = 43.
    assert (made(9, 1).gib, made(9, 1).options) == (43, "--adamw-bits 8")
    # 2 x 40 is more than a card has.
    assert (made(20, 1).gib, made(20, 1).options, made(20, 1).mfu) == (6, "--offload", None)
    # Two cards hold half each: 9 + 9 + 18 + 6.
    assert (made(9, 2).gib, made(9, 2).options) == (42, "")
