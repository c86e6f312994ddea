import copy

import pytest
import torch
from golden import losses as golden
from two_ranks.learning import Fixed, random_rows, settings, tiny_model

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import token_mean
from ludic_train.algorithms.kl import DistillationLoss, TokenKLLoss
from ludic_train.algorithms.variants import distillation
from ludic_train.sources.teacher import TaughtBatchSource
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import REFERENCE


def test_on_policy_its_gradient_is_that_of_the_reverse_kl():
    # k2 has the gradient of the divergence; with a ratio of 1 the two agree token by token.
    known = golden.batch(token_mean, sampler="new_logp")
    _, found = golden.value_and_grad(DistillationLoss(), known)
    _, expected = golden.value_and_grad(TokenKLLoss(1.0), known)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_expected_gradient_on_two_tokens_is_that_of_the_divergence():
    z = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    logprobs = torch.stack([torch.nn.functional.logsigmoid(-z), torch.nn.functional.logsigmoid(z)])
    teacher = torch.tensor([0.7, 0.3], dtype=torch.float64).log()
    divergence = (logprobs.exp() * (logprobs - teacher)).sum()
    (expected,) = torch.autograd.grad(divergence, z, retain_graph=True)
    known = golden.LossBatch(
        weight=torch.ones(2, dtype=torch.float64),
        scale=logprobs.detach().exp(),
        rollout=torch.arange(2),
        num_rollouts=2,
        behavior_logprobs=logprobs.detach(),
        attachments={REFERENCE: teacher},
    )
    out = golden.TokenLogprobs(logprobs=logprobs, entropy=logprobs)
    (found,) = torch.autograd.grad(DistillationLoss()(out, known)[0], z)
    assert found.item() == pytest.approx(expected.item(), abs=1e-12)


async def test_a_student_comes_closer_to_its_teacher():
    student, teacher = tiny_model(0), tiny_model(1)
    frozen = copy.deepcopy(teacher.state_dict())
    trainer = Trainer(
        student, distillation(), Fixed(random_rows(8)), cfg=settings(), reference=teacher
    )
    distances = []
    await trainer.train(20, lambda version, m: distances.append(m["teacher_kl"].value))
    assert distances[-1] < 0.5 * distances[0]
    assert all(torch.equal(tensor, frozen[name]) for name, tensor in teacher.state_dict().items())


async def test_a_source_can_ask_the_teacher():
    items = random_rows(4)

    class Echo:
        async def logprobs(self, items):
            return [item.behavior_logprobs for item in items]

    class At3(Fixed):
        def state_dict(self):
            return {"at": 3}

    source = TaughtBatchSource(At3(items), Echo())
    batch = await source.next_batch(distillation())
    assert all(item.attachments[REFERENCE] is item.behavior_logprobs for item in batch.items)
    assert source.state_dict() == {"at": 3}
    trainer = Trainer(tiny_model(), distillation(), source, cfg=settings())
    await trainer.train(1)
    assert trainer.version == 1


async def test_without_a_teacher_there_is_nothing_to_learn():
    trainer = Trainer(tiny_model(), distillation(), Fixed(random_rows(4)), cfg=settings())
    with pytest.raises(ConfigError, match="reference model"):
        await trainer.train(1)
