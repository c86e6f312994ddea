"""Divergence from a teacher over its k most likely tokens, up to the gradient of an update."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from two_ranks.learning import (
    gradient_of,
    random_masks,
    random_rows,
    relative_error,
    settings,
    tiny_model,
    with_teacher,
)

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.kl import TopKDistillationLoss
from ludic_train.algorithms.presets import distillation, grpo, top_k_distillation
from ludic_train.errors import LossError, MissingAttachment, UntrainableRollout
from ludic_train.models.head import logits_logprobs
from ludic_train.trainer.config import Execution
from ludic_train.trainer.prepare import attach_streams
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import LossBatch, TokenLogprobs, TopTokens

BETAS = (0.0, 0.3, 1.0)


def batch(teacher):
    """N tokens of scale 1 with these log-probs of a teacher, [N, k + 1]."""
    ones = torch.ones(len(teacher), dtype=teacher.dtype)
    return LossBatch(
        weight=ones,
        scale=ones,
        rollout=torch.arange(len(ones)),
        num_rollouts=len(ones),
        teacher_logprobs=teacher,
    )


def student(logprobs):
    return TokenLogprobs(logprobs[:, 0], logprobs[:, 0], top_logprobs=logprobs)


def exact(teacher, student, beta):
    """The generalised divergence of probabilities, summed over the last axis, from its formula."""

    def kl(p, q):
        return (p * (p / q).log()).sum(-1)

    if beta in (0, 1):
        return kl(student, teacher) if beta else kl(teacher, student)
    m = beta * teacher + (1 - beta) * student
    return beta * kl(teacher, m) + (1 - beta) * kl(student, m)


# Teacher (0.5, 0.3 | 0.2), student (0.25, 0.25 | 0.5).
# beta 0:   0.5 ln 2 + 0.3 ln 1.2 - 0.2 ln 2.5 = 0.346574 + 0.054696 - 0.183258
# beta 1:   -0.25 ln 2 - 0.25 ln 1.2 + 0.5 ln 2.5 = -0.173287 - 0.045580 + 0.458145
# beta 1/2: m = (0.375, 0.275, 0.35);
#           KL(t || m) = 0.5 ln (4/3) + 0.3 ln (12/11) - 0.2 ln (7/4) = 0.058021
#           KL(s || m) = -0.25 ln (3/2) - 0.25 ln (11/10) + 0.5 ln (10/7) = 0.053144
@pytest.mark.parametrize(
    ("beta", "expected"), [(0.0, 0.218012), (1.0, 0.239278), (0.5, (0.058021 + 0.053144) / 2)]
)
def test_the_divergence_of_three_outcomes_is_the_one_worked_out(beta, expected):
    teacher = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64).log()
    own = torch.tensor([[0.25, 0.25, 0.5]], dtype=torch.float64).log()
    value, metrics = TopKDistillationLoss(beta)(student(own), batch(teacher))
    assert value.item() == pytest.approx(expected, abs=2e-6)
    assert [x.item() for x in metrics["teacher_divergence"]] == [value.item(), 1.0]
    assert metrics["teacher_rest"][0].item() == pytest.approx(0.2)


# Of 5 tokens the teacher names 3 and 1, with probabilities 0.6 and 0.3.
NAMED, TEACHER = torch.tensor([[3, 1]]), torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64)


def gradient_of_logits(beta):
    logits = torch.tensor([[0.2, -0.4, 1.0, 0.3, -1.0]], dtype=torch.float64, requires_grad=True)
    *_, top = logits_logprobs(logits, torch.tensor([2]), NAMED)
    TopKDistillationLoss(beta)(student(top), batch(TEACHER.log()))[0].backward()
    return logits.detach(), logits.grad[0]


def test_the_gradient_of_the_forward_divergence_is_the_difference_of_probabilities():
    logits, found = gradient_of_logits(0.0)
    s = logits.softmax(-1)[0]
    rest = s[0] + s[2] + s[4]
    # s - t at the named tokens; the others share the teacher's rest of 0.1 as they share theirs.
    target = torch.stack([0.1 * s[0] / rest, s[0] * 0 + 0.3, 0.1 * s[2] / rest, s[0] * 0 + 0.6])
    expected = s - torch.cat([target, 0.1 * s[4:] / rest])
    torch.testing.assert_close(found, expected, atol=1e-14, rtol=0)


@pytest.mark.parametrize("beta", BETAS)
def test_the_gradient_of_any_divergence_is_that_of_every_token_moved_a_little(beta):
    logits, found = gradient_of_logits(beta)

    def value(z):
        s = z.softmax(-1)
        outcomes = torch.stack([s[0, 3], s[0, 1], s[0, 0] + s[0, 2] + s[0, 4]])
        return exact(TEACHER[0], outcomes, beta).item()

    for token in range(5):
        step = torch.zeros_like(logits)
        step[0, token] = 1e-5
        slope = (value(logits + step) - value(logits - step)) / 2e-5
        assert found[token].item() == pytest.approx(slope, abs=1e-9)


def whole_divergence(rows, teacher, own, beta):
    """Mean over sampled tokens of the divergence over the vocabulary, by the models' own logits."""
    found = []
    for row in rows:
        ids = torch.from_numpy(row.input_ids[None].astype(np.int64))
        at = np.flatnonzero(row.action_mask) - 1
        with torch.no_grad():
            t, s = (
                (model(ids).logits[0, at].double() / row.temperature).softmax(-1)
                for model in (teacher, own)
            )
        found.append(exact(t, s, beta))
    return torch.cat(found).mean().item()


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_with_the_whole_vocabulary_an_update_has_the_whole_divergence(beta, temperature):
    # Models of small weights hardly differ; at 0.2 their logits are 5 times as far apart.
    rows = [replace(row, temperature=temperature) for row in random_rows(6)]
    teacher, own = tiny_model(1), tiny_model(0)
    expected = whole_divergence(rows, teacher, own, beta)
    algo = top_k_distillation(k=own.config.vocab_size, beta=beta)
    (made,) = Trainer(own, algo, None, cfg=settings(), reference=teacher).update(rows)
    assert made["loss"].value == pytest.approx(expected, rel=1e-4)
    assert made["teacher_divergence"].value == pytest.approx(expected, rel=1e-4)
    assert made["teacher_rest"].value == 0


def test_a_row_with_sampling_masks_is_compared_among_the_tokens_of_these():
    rows = random_rows(4)
    drawn = rows[0].input_ids[rows[0].action_mask]
    masks = random_masks(drawn, np.random.default_rng(0))
    rows = [replace(rows[0], sampling_mask=masks)]
    # A mask has 10 tokens at most, so that 12 hold all of it, and some of no probability.
    made = [
        Trainer(tiny_model(), algo, None, cfg=settings(), reference=tiny_model(1)).update(rows)[0]
        for algo in (top_k_distillation(k=12), top_k_distillation(k=12, beta=1.0))
    ]
    for metrics in made:
        assert 0 < metrics["loss"].value < 1
        assert math.isfinite(metrics["grad_norm"].value)
        assert metrics["updates/skipped"].value == 0
        assert metrics["teacher_rest"].value == 0


def test_rows_may_have_other_numbers_of_tokens():
    items, algo = random_rows(6), top_k_distillation()
    few, many = with_teacher(items[:3], 2), with_teacher(items[3:], 5)
    together, _ = gradient_of([*few, *many], settings(), algo)
    tokens = [sum(row.action_mask.sum() for row in rows) for rows in (few, many)]
    parts = [gradient_of(rows, settings(), algo)[0] for rows in (few, many)]
    expected = sum(n * part for n, part in zip(tokens, parts, strict=True)) / sum(tokens)
    assert relative_error(together, expected) < 1e-5


def test_the_reference_gives_what_it_finds_most_likely():
    rows, teacher = random_rows(5, masked=0.3), tiny_model(1)
    found = attach_streams(
        rows, tiny_model(), teacher, top_k_distillation(k=4), settings(), execution=Execution()
    )
    for row in found:
        with torch.no_grad():
            ids = torch.from_numpy(row.input_ids[None].astype(np.int64))
            logits = teacher(ids).logits[0, np.flatnonzero(row.action_mask) - 1]
        logprobs = logits.log_softmax(-1)
        expected = logprobs.topk(4)
        np.testing.assert_array_equal(row.teacher.ids, expected.indices)
        np.testing.assert_allclose(row.teacher.logprobs[:, :4], expected.values, atol=1e-5)
        rest = 1 - expected.values.double().exp().sum(-1)
        np.testing.assert_allclose(np.exp(row.teacher.logprobs[:, 4]), rest, atol=1e-6)
        assert row.teacher.ids.dtype == np.int32


def test_without_a_teacher_there_is_nothing_to_learn():
    for algo in (distillation(), top_k_distillation()):
        with pytest.raises(ConfigError, match="reference model"):
            Trainer(tiny_model(), algo, None, cfg=settings()).update(random_rows(2))
    loss = TopKDistillationLoss()
    with pytest.raises(MissingAttachment, match="most likely tokens"):
        gradient_of(random_rows(2), settings(), grpo(loss=loss))
    tops = torch.zeros(2, 3), torch.zeros(2, 4)
    with pytest.raises(LossError, match=r"\[2, 3\] and the teacher's \[2, 4\]"):
        loss(student(tops[0]), batch(tops[1]))


@pytest.mark.parametrize(
    ("ids", "logprobs", "why"),
    [
        ([[7]], [[-0.1, -2.0]] * 2, r"\[1, 1\] and log-probs \[2, 2\]"),
        ([[7], [8]], [[-0.1], [-0.1]], r"log-probs \[2, 1\]"),
        ([[7], [90_000]], [[-0.1, -2.0]] * 2, "tokens 7 to 90000"),
        ([[-1], [8]], [[-0.1, -2.0]] * 2, "tokens -1 to 8"),
        ([[7], [8]], [[-0.1, -2.0], [math.nan, 0]], "log-prob nan"),
        ([[7], [8]], [[-0.1, -2.0], [0.5, -1]], "log-prob 0.5, .* '0'"),
    ],
)
def test_tokens_of_no_use_are_refused(ids, logprobs, why):
    row = next(row for row in random_rows(20) if row.action_mask.sum() == 2)
    top = TopTokens(ids=np.array(ids, np.int32), logprobs=np.array(logprobs, np.float32))
    with pytest.raises(UntrainableRollout, match=why):
        gradient_of([replace(row, teacher=top, group="0")], settings(), top_k_distillation())


def test_settings_out_of_range_are_refused():
    with pytest.raises(ConfigError, match=r"beta is 1\.5"):
        top_k_distillation(beta=1.5)
    with pytest.raises(ConfigError, match="teacher_top_k=0"):
        top_k_distillation(k=0)
