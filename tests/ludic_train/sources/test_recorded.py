from dataclasses import replace

import numpy as np
import pytest
from two_ranks.learning import settings, tiny_model, tokenizer

from ludic_gym.contexts import FullDialog
from ludic_gym.records import read_rollouts, write_rollouts
from ludic_gym.types import Completion, Decision, Rollout, Sampling, Step, Task
from ludic_train.algorithms.presets import awr, grpo, rejection_sampling, sft
from ludic_train.errors import EmptyBatch, MissingLogprobs, UntrainableRollout
from ludic_train.models.chat_template import with_token_ids
from ludic_train.rows import rows_from
from ludic_train.sources.offline import OfflineBatchSource, recorded_rollouts
from ludic_train.trainer.trainer import Trainer

EXACT = Completion(
    text="a",
    finish_reason="stop",
    prompt_ids=(10, 11),
    completion_ids=(12, 13),
    logprobs=(-5.5, -5.0),
    policy_version=40,
)


def rollout(reward, call=EXACT, group="g"):
    decision = Decision(action="a", completions=(call,) if call else ())
    step = Step(observation="?", decision=decision, reward=reward, terminated=True)
    return Rollout(task=Task(env_id="ludic/X-v0", group=group), steps=(step,))


def written(tmp_path, *rollouts):
    write_rollouts(rollouts, tmp_path / "games.jsonl")
    return read_rollouts(tmp_path / "games.jsonl")


def rows(rollouts, algo, render=None):
    return rows_from(recorded_rollouts(rollouts, render=render), algo)


def test_recorded_tokens_are_taken_as_they_are(tmp_path):
    (row,) = rows(written(tmp_path, rollout(1.0)), sft())
    assert row.input_ids.tolist() == [10, 11, 12, 13]
    assert row.action_mask.tolist() == [False, False, True, True]
    assert row.weight.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(row.behavior_logprobs, np.float32([0, 0, -5.5, -5.0]))
    # Version 40 of another run would be from the future of this one.
    assert row.versions is None


def test_rejection_sampling_keeps_the_best_of_each_group(tmp_path):
    others = [replace(EXACT, completion_ids=(20 + i,), logprobs=(-5.0,)) for i in range(4)]
    rollouts = [
        rollout(reward, call, group)
        for reward, call, group in zip((0.2, 0.9, 0.0, 0.4), others, "aabb", strict=True)
    ]
    best = rows(written(tmp_path, *rollouts), rejection_sampling())
    assert [int(row.input_ids[-1]) for row in best] == [21, 23]


def test_imitation_by_advantage_weighs_all(tmp_path):
    weighed = rows(written(tmp_path, rollout(0.0), rollout(1.0)), awr())
    # Centred: -0.5 and 0.5; exp of that.
    assert [row.weight[-1] for row in weighed] == pytest.approx([0.6065, 1.6487], abs=1e-4)


def test_rollouts_without_tokens_are_rendered(tmp_path):
    silent = Completion(text="yes", finish_reason="stop")
    rendered = rows(
        written(tmp_path, rollout(1.0, silent), rollout(1.0, None), rollout(1.0)),
        sft(),
        render=lambda r: with_token_ids(r, tokenizer(), FullDialog()),
    )
    said = [tokenizer().decode(row.input_ids[row.action_mask]) for row in rendered[:2]]
    assert said == ["yes<|im_end|>", "a<|im_end|>"]
    assert rendered[2].input_ids.tolist() == [10, 11, 12, 13]


def test_without_tokens_nor_a_way_to_make_them_there_is_nothing_to_learn(tmp_path):
    silent = Completion(text="yes", finish_reason="stop")
    with pytest.raises(UntrainableRollout, match="completion_ids=None"):
        rows(written(tmp_path, rollout(1.0, silent)), sft())


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling(top_p=0.9)])
def test_samples_of_another_distribution_can_be_imitated_but_not_weighed(tmp_path, sampling):
    call = replace(EXACT, sampling=sampling)
    recorded = list(written(tmp_path, rollout(1.0, call), rollout(0.0, call)))
    compared = rows(recorded, grpo())
    assert [row.behavior_logprobs for row in compared] == [None, None]
    trainer = Trainer(tiny_model(), grpo(), None, cfg=settings())
    with pytest.raises(MissingLogprobs):
        trainer.update(compared)
    Trainer(tiny_model(), sft(), None, cfg=settings()).update(rows(recorded, sft())[:1])


async def test_an_algorithm_that_keeps_nothing_says_what_the_best_was(tmp_path):
    recorded = recorded_rollouts(written(tmp_path, rollout(-1.0), rollout(-0.5)))
    with pytest.raises(EmptyBatch, match=r"keeps none of 2 .* the best earned -0\.5"):
        await OfflineBatchSource(recorded, batch_size=1).next_batch(rejection_sampling())


async def test_a_model_learns_from_a_file(tmp_path):
    recorded = recorded_rollouts(written(tmp_path, rollout(1.0), rollout(0.0)))
    source = OfflineBatchSource(recorded, batch_size=2)
    losses = []
    cfg = replace(settings(), lr=1e-2)
    trainer = Trainer(tiny_model(), awr(), source, cfg=cfg)
    await trainer.train(20, lambda version, m: losses.append(m["nll"].value))
    assert losses[-1] < 0.5 * losses[0]
