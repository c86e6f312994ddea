"""Updates in bfloat16: params, gradients and moments stay float32, and small steps are not lost."""

from functools import partial

import pytest
import torch
from peft import LoraConfig, get_peft_model
from two_ranks.learning import random_rows, relative_error, settings, tiny_model

from ludic_train.algorithms.presets import grpo, sft
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.training_state import resume_training, save_shards
from ludic_train.distributed.device import process_group
from ludic_train.distributed.fsdp import shard_model, whole
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.trainer.config import TrainerConfig
from ludic_train.trainer.microbatches import plan_update
from ludic_train.trainer.step import forward, loss_batch
from ludic_train.trainer.trainer import Trainer


def lora_over_bfloat16():
    """A frozen base of 16 bits, and adapters of 32, of which both matrices learn."""
    torch.manual_seed(0)
    config = LoraConfig(
        r=2, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM"
    )
    return get_peft_model(tiny_model().bfloat16(), config)


KINDS = {"full": tiny_model, "lora": lora_over_bfloat16}
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def group():
    """torch.distributed with this process alone."""
    with process_group("cpu"):
        yield


def trained(model):
    return {n: whole(p.detach()).clone() for n, p in model.named_parameters() if p.requires_grad}


@pytest.mark.long
@kinds
def test_ten_updates_of_a_rate_of_1e_6_move_nearly_all_params(kind, group):
    model = shard_model(KINDS[kind](), param_dtype=torch.bfloat16)
    before = trained(model)
    rows = random_rows(40)
    cfg = TrainerConfig(lr=1e-6, max_seq_len=24, micro_token_budget=500)
    made = Trainer(model, sft(), None, cfg=cfg)
    for _ in range(10):
        made.update(rows)
    after = trained(model)
    assert {tensor.dtype for tensor in after.values()} == {torch.float32}
    # The rows of tokens that are in no row of the batch have no gradient.
    used = {int(i) for row in rows for i in row.input_ids}
    moved = total = 0
    for name, tensor in after.items():
        changed = tensor != before[name]
        if "embed_tokens" in name and "lora_" not in name:
            changed = changed[sorted(used)]
        moved, total = moved + int(changed.sum()), total + changed.numel()
    assert moved >= 0.99 * total
    # In bfloat16 itself, hardly any step of 1e-6 would have been seen.
    seen = sum(int((t.bfloat16() != before[n].bfloat16()).sum()) for n, t in after.items())
    assert seen < 0.1 * total


def gradients_added_up(kind):
    """Gradients of some micro-batches as FSDP adds them up, and their sum in float64."""
    model = shard_model(KINDS[kind](), param_dtype=torch.bfloat16)
    (plan,) = plan_update(random_rows(30, seed=2), token_budget=24, aggregation=grpo().aggregation)
    assert len(plan) > 12
    params = [p for p in model.parameters() if p.requires_grad]

    def backward(micro_batch):
        grpo().loss(forward(model, micro_batch), loss_batch(micro_batch, 0))[0].backward()

    def gradient():
        return torch.cat([whole(p.grad).flatten() for p in params])

    alone = 0
    for micro_batch in plan:
        model.zero_grad()
        backward(micro_batch)
        alone = alone + gradient().double()
    model.zero_grad()
    for micro_batch in plan:
        backward(micro_batch)
    return gradient(), alone


@pytest.mark.long
@kinds
def test_gradients_of_micro_batches_add_up_in_float32(kind, group):
    found, expected = gradients_added_up(kind)
    assert found.dtype == torch.float32
    assert relative_error(found.double(), expected) < 1e-6


def trainer_of(seed=0, shard=lambda model: model):
    source = OfflineBatchSource(random_rows(20), batch_size=8, seed=1)
    return Trainer(shard(tiny_model(seed)), grpo(), source, cfg=settings(60))


async def test_offloading_changes_no_bit_and_resumes(tmp_path, group):
    usual = trainer_of(shard=shard_model)
    away = trainer_of(shard=partial(shard_model, offload=True))
    manager = CheckpointManager(tmp_path)
    for made in (usual, away):
        await made.train(2)
    save_shards(manager, away)
    again = trainer_of(seed=1, shard=partial(shard_model, offload=True))
    resume_training(manager, again)
    for made in (usual, away, again):
        await made.train(1)
    for a, b, c in zip(*(made.model.parameters() for made in (usual, away, again)), strict=True):
        assert torch.equal(whole(a), whole(b))
        assert torch.equal(whole(a), whole(c))
