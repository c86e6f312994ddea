import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from trajectories import call, rollout
from two_ranks.learning import Fixed

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.batch_credit import OverlongPenalty, SeatBaselineReturn, TokenWhitened
from ludic_train.algorithms.presets import grpo, reinforce, self_play, sft
from ludic_train.engine.client import LocalChatClient
from ludic_train.errors import CheckpointError, EmptyBatch, NonFiniteUpdate
from ludic_train.metrics import Stat
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.rows import trajectory_from
from ludic_train.sources.publisher import InProcessPublisher
from ludic_train.trainer.config import Guards
from ludic_train.trainer.prepare import minibatches
from ludic_train.trainer.trainer import Trainer, TrainerConfig
from ludic_train.types import SAWBatch, SAWItem


def tiny_model():
    tokenizer = make_tokenizer(["a b c"])
    return make_tiny_model(tokenizer, hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1)


def rows(count, *, seed=0, versions=0, behavior=-5.5):
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        length = int(rng.integers(3, 20))
        mask = np.arange(length) >= int(rng.integers(1, length))
        made.append(
            SAWItem(
                input_ids=rng.integers(3, 250, length).astype(np.int32),
                action_mask=mask,
                weight=np.where(mask, rng.normal(), 0).astype(np.float32),
                behavior_logprobs=np.where(mask, behavior, 0).astype(np.float32),
                versions=np.where(mask, versions, -1).astype(np.int32),
                group=str(i // 2),
            )
        )
    return made


class Recorder:
    def __init__(self):
        self.versions = []

    async def publish(self, params, version):
        self.versions.append((version, len(dict(params))))


def gradient(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def test_the_sft_loss_is_the_mean_negative_logprob_of_all_action_tokens():
    items, model = rows(5), tiny_model()
    expected, count = 0.0, 0
    for item in items:
        ids = torch.from_numpy(item.input_ids.astype(np.int64))
        logprobs = model(ids[None]).logits[0].log_softmax(-1)
        for t in np.flatnonzero(item.action_mask):
            expected -= item.weight[t] * logprobs[t - 1, ids[t]].item()
            count += 1
    (metrics,) = Trainer(model, sft(), Fixed(items)).update(items)
    assert metrics["loss"].value == pytest.approx(expected / count, rel=1e-4)


async def test_params_are_published_at_the_start_at_every_second_update_and_after_the_last():
    publisher = Recorder()
    cfg = TrainerConfig(publish_every=2)
    trainer = Trainer(tiny_model(), sft(), Fixed(rows(4)), publisher, cfg)
    await trainer.train(3)
    await trainer.train(1)
    assert [version for version, _ in publisher.versions] == [0, 2, 3, 4]
    assert all(count > 5 for _, count in publisher.versions)


async def test_params_that_are_not_finite_are_not_published():
    recorder = Recorder()
    trainer = Trainer(tiny_model(), grpo(), Fixed(rows(8)), recorder, TrainerConfig())
    name, param = next(iter(trainer.model.named_parameters()))
    with torch.no_grad():
        param.view(-1)[0] = float("nan")
    with pytest.raises(NonFiniteUpdate, match=f"{name} of version 0 are not finite"):
        await trainer.train(1)
    assert recorder.versions == []


def test_rows_that_a_rollout_became_and_their_tokens_are_reported():
    first, second, other = rows(3)
    items = [replace(first, rollout="a"), replace(second, rollout="a"), other]
    (metrics,) = Trainer(tiny_model(), sft(), None).update(items)
    assert metrics["rows/rollout"] == Stat(3, 2)
    assert metrics["rows/further"].value == 1
    assert metrics["tokens/rollout"] == Stat(sum(len(item.input_ids) for item in items), 2)


def test_a_model_that_is_frozen_as_a_whole_is_refused():
    with pytest.raises(ConfigError, match="no param of this Qwen3ForCausalLM requires a gradient"):
        Trainer(tiny_model().requires_grad_(False), sft(), None)


def test_a_local_engine_is_told_of_every_update():
    model = tiny_model()
    publisher = InProcessPublisher(LocalChatClient(model, make_tokenizer(["a b c"])))
    with pytest.raises(ConfigError, match="publish_every=2"):
        Trainer(model, sft(), Fixed([]), publisher, TrainerConfig(publish_every=2))


async def test_minibatches_share_a_batch_without_loss_or_repetition():
    items = rows(10)
    source, counts = Fixed(items), []
    trainer = Trainer(tiny_model(), sft(), source, cfg=TrainerConfig(minibatches=3))
    await trainer.train(3, lambda version, metrics: counts.append(metrics["rows"].value))
    assert source.given == 1
    assert sorted(counts) == [3, 3, 4]
    parts = minibatches(items, trainer.cfg, sft(), version=0)
    assert sorted(id(item) for part in parts for item in part) == sorted(map(id, items))


def test_rows_that_are_too_long_or_too_old_are_dropped_and_counted():
    items = [*rows(4, versions=5), *rows(4, versions=1, seed=1)]
    cfg = TrainerConfig(max_seq_len=12)
    trainer = Trainer(tiny_model(), grpo(max_lag=2), Fixed(items), cfg=cfg)
    trainer.version = 5
    long = sum(len(item.input_ids) > 12 for item in items)
    old = sum(len(item.input_ids) <= 12 for item in items[4:])
    (metrics,) = trainer.update(items)
    assert metrics["rows/overlong"].value == long > 0
    assert metrics["rows/stale"].value == old > 0
    assert metrics["rows"].value == 8 - long - old


class InTurn(Fixed):
    """A source whose batches are given in turn, the last one for ever."""

    def __init__(self, batches):
        super().__init__(())
        self.batches = [SAWBatch(items=tuple(items)) for items in batches]

    async def next_batch(self, algo):
        self.given += 1
        return self.batches[min(self.given, len(self.batches)) - 1]


async def test_a_batch_without_usable_rows_waits_for_the_next(caplog):
    overlong = [item for item in rows(20) if len(item.input_ids) > 13]
    source = InTurn([overlong, overlong, rows(4)])
    trainer = Trainer(tiny_model(), grpo(), source, cfg=TrainerConfig(max_seq_len=13))
    made = []
    await trainer.train(1, on_update=lambda version, metrics: made.append(metrics))
    assert source.given == 3
    (metrics,) = made
    short = sum(len(item.input_ids) <= 13 for item in rows(4))
    assert metrics["rows"].value == short
    assert "max_seq_len=13" in caplog.text
    assert metrics["rows/overlong"].value == 2 * len(overlong) + 4 - short


async def test_many_batches_without_usable_rows_end_the_run():
    source = InTurn([rows(2)])
    trainer = Trainer(tiny_model(), grpo(), source, cfg=TrainerConfig(max_seq_len=1))
    with pytest.raises(EmptyBatch, match="40 exceed max_seq_len=1"):
        await trainer.train(1)
    assert source.given == 20


async def test_a_trainer_without_a_source_learns_from_what_it_is_given_alone():
    trainer = Trainer(tiny_model(), sft(), None)
    trainer.update(rows(2))
    trainer.load_state_dict(trainer.state_dict())
    assert trainer.version == 1
    with pytest.raises(ConfigError, match="batch_source"):
        await trainer.train(1)


def test_an_update_without_usable_rows_is_refused():
    trainer = Trainer(tiny_model(), grpo(max_lag=0), Fixed([]))
    trainer.version = 3
    with pytest.raises(EmptyBatch, match="2 lag more than max_lag=0"):
        trainer.update(rows(2, versions=1))


def test_gradients_that_are_not_finite_are_skipped_until_there_are_too_many_in_a_row():
    model = tiny_model()
    before = [p.clone() for p in model.parameters()]
    (good,), (bad,) = rows(1), rows(1)
    # Finite, and too large for float32 once it is multiplied.
    bad.weight[bad.action_mask] = 3e38
    trainer = Trainer(model, sft(), Fixed([]), cfg=TrainerConfig(guards=Guards(max_skipped=1)))
    assert [made["updates/skipped"].value for made in trainer.update([bad])] == [1]
    assert trainer.version == 0
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert [made["updates/skipped"].value for made in trainer.update([good])] == [0]
    trainer.update([bad])
    with pytest.raises(NonFiniteUpdate, match=r"update 2 is (nan|inf), for the 2\. time in a row"):
        trainer.update([bad])


async def test_a_skipped_update_is_reported_with_the_next_one():
    (good,), (bad,) = rows(1), rows(1)
    bad.weight[bad.action_mask] = 3e38
    batches = iter([[bad], [good]])

    class Bad(Fixed):
        async def next_batch(self, algo):
            return SAWBatch(items=tuple(next(batches)), metrics={"reward": Stat(2, 4)})

    seen = []
    await Trainer(tiny_model(), sft(), Bad([])).train(1, lambda v, m: seen.append((v, m)))
    ((version, metrics),) = seen
    assert (version, metrics["updates/skipped"].value) == (1, 1)
    # The episodes were played, whatever became of the update; its loss was no number.
    assert metrics["reward"] == Stat(4, 8)
    assert np.isfinite(metrics["loss"].value)


def test_losses_know_how_many_updates_were_made_before_each():
    seen = []

    def noting(out, batch):
        seen.append(batch.version)
        return sft().loss(out, batch)

    cfg = TrainerConfig(minibatches=2)
    trainer = Trainer(tiny_model(), sft(loss=noting), None, cfg=cfg)
    trainer.update(rows(8))
    trainer.update(rows(8))
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("settings", "oldest"),
    [({"minibatches": 4}, 3), ({"epochs": 3}, 2), ({"publish_every": 2, "minibatches": 2}, 2)],
)
def test_a_lag_that_no_row_could_meet_is_refused(settings, oldest):
    cfg = TrainerConfig(**settings)
    with pytest.raises(ConfigError, match=f"up to {oldest} updates old, .* max_lag={oldest - 1}"):
        Trainer(tiny_model(), grpo(max_lag=oldest - 1), Fixed([]), cfg=cfg)
    Trainer(tiny_model(), grpo(max_lag=oldest), Fixed([]), cfg=cfg)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_params_of_16_bits_are_not_trained(dtype):
    with pytest.raises(ConfigError, match="embed_tokens"):
        Trainer(tiny_model().to(dtype), grpo(), None)


def test_frozen_params_may_have_16_bits():
    model = tiny_model().bfloat16().requires_grad_(False)
    model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight).float())
    Trainer(model, grpo(), None)


async def test_memory_time_of_publications_and_attention_kernels_are_reported():
    seen = []
    algo, cfg = grpo(max_lag=1), TrainerConfig(lr=1e-3, publish_every=2)
    trainer = Trainer(tiny_model(), algo, Fixed(rows(4)), Recorder(), cfg)
    await trainer.train(2, on_update=lambda version, metrics: seen.append(metrics))
    # The first of two updates is not published; torch alone has 50 MB.
    assert ["seconds/publish" in metrics for metrics in seen] == [False, True]
    assert seen[1]["seconds/publish"].value > 0
    assert all(0.05 < metrics["memory/peak_gib"].value < 64 for metrics in seen)
    assert trainer.attention == {("flash", "float32")}


@pytest.mark.parametrize("wrapped", [TokenWhitened, lambda inner: OverlongPenalty(inner, 8, 4)])
def test_statistics_inside_of_other_credit_go_on(wrapped):
    def new(decay):
        credit = wrapped(SeatBaselineReturn(decay))
        return credit, Trainer(tiny_model(), reinforce(credit=credit), None)

    credit, trainer = new(0.5)
    credit([trajectory_from(rollout((call([1], [2]),), rewards=[3.0]))])
    again, resumed = new(0.5)
    resumed.load_state_dict(json.loads(json.dumps(trainer.state_dict())))
    inner = [getattr(c, "advantage", None) or c.credit for c in (credit, again)]
    assert inner[0].means == inner[1].means != {}


def test_the_state_of_another_algorithm_is_refused():
    other = Trainer(tiny_model(), reinforce(), None)
    trainer = Trainer(tiny_model(), self_play(), None)
    with pytest.raises(CheckpointError, match="self_play"):
        trainer.load_state_dict(other.state_dict())
