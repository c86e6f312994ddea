"""Settings that change memory and speed: tokens of a forward pass, entropies."""

import traceback
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ludic_train.algorithms.presets import grpo, sft, with_entropy
from ludic_train.errors import LossError, OutOfMemory
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.trainer.config import Execution, Guards, TrainerConfig
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import SAWItem


def tiny_model():
    tokenizer = make_tokenizer(["a b c"])
    return make_tiny_model(tokenizer, hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1)


def row(number=8):
    ids, mask = np.array([5, 6, 7, number], np.int32), np.array([False, False, True, True])
    return SAWItem(input_ids=ids, action_mask=mask, weight=mask.astype(np.float32))


@pytest.mark.parametrize(
    ("settings", "longest", "tokens"),
    [
        ({}, 10, 4_096),
        ({"device": "cuda:1"}, 10, 16_384),
        ({"max_seq_len": 32_768}, 10, 4_096),
        ({"max_seq_len": 32_768}, 5_000, 5_000),
        ({"max_seq_len": 100, "micro_token_budget": 200}, 100, 200),
    ],
)
def test_the_token_budget_suits_the_device_and_holds_the_longest_row(settings, longest, tokens):
    assert TrainerConfig(**settings).token_budget(longest) == tokens


def test_entropies_can_be_switched_off_and_are_then_refused_to_losses():
    items, plain = [row()], sft()
    cfg = TrainerConfig(execution=Execution(entropy=False))
    (made,) = Trainer(tiny_model(), plain, None, cfg=cfg).update(items)
    assert "entropy" not in made
    assert "loss" in made
    algo = replace(plain, loss=with_entropy(plain.loss, 0.1))
    trainer = Trainer(tiny_model(), algo, None, cfg=cfg)
    with pytest.raises(LossError, match=r"\[0\] and should be"):
        trainer.update(items)


# transformers looks at positions once per pass; the second line is for CPUs alone.
KNOWN = ("(packed_sequence_mask[:, -1] == 0).all()", "hidden.is_cuda or hidden.is_meta or")


class Waits(TorchDispatchMode):
    """Notes the operations for which a host waits for a card: numbers that it reads, and sizes."""

    def __init__(self):
        super().__init__()
        self.places = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in ("_local_scalar_dense", "nonzero", "masked_select", "equal"):
            frames = traceback.extract_stack()
            if not any(known in frame.line for frame in frames for known in KNOWN):
                self.places.append([f"{frame.filename}:{frame.lineno}" for frame in frames[-9:]])
        return func(*args, **(kwargs or {}))


def waits(rows, budget, algo):
    """Places of the waits of the second update of these rows, and its number of passes."""
    cfg = TrainerConfig(
        micro_token_budget=budget, max_seq_len=budget, guards=Guards(max_kl_at_lag_0=None)
    )
    trainer, passes = Trainer(tiny_model(), algo, None, cfg=cfg), []
    trainer.model.get_decoder().register_forward_hook(lambda *_: passes.append(1))
    # The first update looks at the model.
    trainer.update(rows)
    passes.clear()
    with Waits() as found:
        trainer.update(rows)
    return found.places, len(passes)


PLAIN = grpo(filter=None)


@pytest.mark.parametrize("algo", [PLAIN, sft(), replace(PLAIN, loss=with_entropy(PLAIN.loss, 0.1))])
def test_a_card_is_waited_for_as_often_in_many_micro_batches_as_in_one(algo):
    given = {"behavior_logprobs": np.full(4, -1.0, np.float32), "versions": np.zeros(4, np.int32)}
    rows = [replace(row(8 + k), **given) for k in range(8)]
    (often, eight), (few, one) = waits(rows, 4, algo), waits(rows, 32, algo)
    assert (eight, one) == (8, 1)
    # The norm of the gradient.
    assert len(few) == 1
    assert len(often) == 1, often


def test_updates_attend_as_they_are_told():
    models = [tiny_model(), tiny_model()]
    trainers = [
        Trainer(model, sft(), None, cfg=TrainerConfig(execution=Execution(attention=name)))
        for model, name in zip(models, (None, "eager"), strict=True)
    ]
    losses = [trainer.update([row()])[0]["loss"].value for trainer in trainers]
    assert [{each.kernel for each in trainer.attention} for trainer in trainers] == [
        {"flash"},
        {"eager"},
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    for one, two in zip(*(model.parameters() for model in models), strict=True):
        assert torch.allclose(one, two, atol=1e-5)


def test_too_little_memory_is_an_error_that_says_what_takes_less():
    def full(out, batch):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 106.00 MiB. GPU 0 has")

    trainer = Trainer(tiny_model(), sft(), None)
    trainer.update([row()])
    trainer.algo = replace(sft(), loss=full)
    with pytest.raises(OutOfMemory, match=r"4 tokens .*--recompute"):
        trainer.update([row()])
