from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from trajectories import call, rollout
from two_ranks.learning import settings, tiny_model, tokenizer

from ludic_gym.contexts import FullDialog
from ludic_gym.errors import ConfigError
from ludic_gym.records import read_rollouts, write_rollouts
from ludic_gym.types import Completion, Decision, Rollout, Sampling, Step, Task
from ludic_train.algorithms.aggregation import by_sequence
from ludic_train.algorithms.presets import grpo, rejection_sampling, rloo, sft
from ludic_train.errors import CheckpointError, EmptyBatch, MissingLogprobs, UntrainableRollout
from ludic_train.models.chat_template import with_token_ids
from ludic_train.rows import rows_from, trajectory_from
from ludic_train.sources.offline import OfflineBatchSource, recorded_rollouts
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import SAWItem


def items(count):
    return [
        SAWItem(
            input_ids=np.array([i, i], np.int32),
            action_mask=np.array([False, True]),
            weight=np.ones(2, np.float32),
        )
        for i in range(count)
    ]


async def taken(source, batches):
    rows = [row for _ in range(batches) for row in (await source.next_batch(sft())).items]
    return [int(row.input_ids[0]) for row in rows]


async def test_every_pass_gives_each_row_once_in_another_order():
    order = await taken(OfflineBatchSource(items(6), batch_size=4), 3)
    first, second = order[:6], order[6:]
    assert sorted(first) == sorted(second) == list(range(6))
    assert first != second


async def test_a_source_goes_on_where_another_stopped():
    straight = await taken(OfflineBatchSource(items(7), batch_size=3), 6)
    first = OfflineBatchSource(items(7), batch_size=3)
    start = await taken(first, 2)
    second = OfflineBatchSource(items(7), batch_size=3)
    second.load_state_dict(first.state_dict())
    assert start + await taken(second, 4) == straight


async def test_rollouts_get_the_credit_of_the_trainers_algorithm_over_all_of_them():
    # Each less the mean of the others: 3 - 1, 0 - 2, 2 - 1.5.
    rollouts = [rollout((call([1], [2 + i]),), rewards=[r]) for i, r in enumerate([4.0, 0.0, 2.0])]
    for data in (rollouts, [*map(trajectory_from, rollouts)]):
        source = OfflineBatchSource(data, batch_size=1)
        rows = [row for _ in range(3) for row in (await source.next_batch(rloo())).items]
        assert {int(row.input_ids[1]): float(row.weight[1]) for row in rows} == {2: 3, 3: -3, 4: 0}


async def test_rows_that_are_made_when_taken_come_in_the_order_of_those_made_before():
    made = Counter()

    def rows_of(name, item):
        made[name] += 1
        return [replace(item, rollout=name), replace(item, rollout=name)]

    named = list(zip("abcdefg", items(7), strict=True))
    functions = [partial(rows_of, *pair) for pair in named]
    before = [row for pair in named for row in rows_of(*pair)]
    made.clear()

    late, early = (OfflineBatchSource(data, batch_size=3) for data in (functions, before))
    first = await taken(late, 1)
    assert sorted(made.values()) == [1, 1, 1]
    assert [*first, *await taken(late, 6)] == await taken(early, 7)
    assert made == dict.fromkeys("abcdefg", 1)


@pytest.mark.parametrize("data", [[lambda: items(1)] * 2, items(2)])
async def test_fewer_rollouts_than_a_batch_are_refused(data):
    with pytest.raises(ConfigError, match="batch_size=3 with 2 rollouts"):
        await OfflineBatchSource(data, batch_size=3).next_batch(sft())


@pytest.mark.parametrize(("size", "count"), [(0, 4), (1, 0)])
def test_sizes_that_make_no_batch_are_refused(size, count):
    with pytest.raises(ConfigError, match=f"batch_size={size} with {count} rollouts or rows"):
        OfflineBatchSource(items(count), batch_size=size)


@pytest.mark.parametrize("seed", range(4))
async def test_rows_of_a_rollout_come_together_and_as_another_one_in_the_next_pass(seed):
    # As one rollout of twice the tokens, ratios and margins of rollouts would be other numbers.
    rows = [replace(item, rollout=name) for item, name in zip(items(6), "aabbcc", strict=True)]
    source = OfflineBatchSource(rows, batch_size=2, seed=seed)
    for _ in range(3):
        batch = (await source.next_batch(sft())).items
        assert [len(members) for members in by_sequence(batch)] == [2, 2]


@pytest.mark.parametrize("state", [{}, {"cursor": "1-0", "trained": 3}, {"taken": 8, "games": 8}])
def test_the_state_of_another_kind_of_source_is_refused(state):
    with pytest.raises(CheckpointError, match="kept"):
        OfflineBatchSource(items(4), batch_size=2).load_state_dict(state)


EXACT = Completion(
    text="a",
    finish_reason="stop",
    prompt_ids=(10, 11),
    completion_ids=(12, 13),
    logprobs=(-5.5, -5.0),
    policy_version=40,
)


def game(reward, call=EXACT, group="g"):
    decision = Decision(action="a", completions=(call,) if call else ())
    step = Step(observation="?", decision=decision, reward=reward, terminated=True)
    return Rollout(task=Task(env_id="ludic/X-v0", group=group), steps=(step,))


def written(tmp_path, *rollouts):
    write_rollouts(rollouts, tmp_path / "games.jsonl")
    return read_rollouts(tmp_path / "games.jsonl")


def recorded_rows(rollouts, algo, render=None):
    return rows_from(recorded_rollouts(rollouts, render=render), algo)


def test_recorded_tokens_are_taken_as_they_are(tmp_path):
    (row,) = recorded_rows(written(tmp_path, game(1.0)), sft())
    assert row.input_ids.tolist() == [10, 11, 12, 13]
    assert row.action_mask.tolist() == [False, False, True, True]
    assert row.weight.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(row.behavior_logprobs, np.float32([0, 0, -5.5, -5.0]))
    # Version 40 of another run would be from the future of this one.
    assert row.versions is None


def test_rollouts_without_tokens_are_rendered(tmp_path):
    silent = Completion(text="yes", finish_reason="stop")
    rendered = recorded_rows(
        written(tmp_path, game(1.0, silent), game(1.0, None), game(1.0)),
        sft(),
        render=lambda r: with_token_ids(r, tokenizer(), FullDialog()),
    )
    said = [tokenizer().decode(row.input_ids[row.action_mask]) for row in rendered[:2]]
    assert said == ["yes<|im_end|>", "a<|im_end|>"]
    assert rendered[2].input_ids.tolist() == [10, 11, 12, 13]


def test_without_tokens_nor_a_way_to_make_them_there_is_nothing_to_learn(tmp_path):
    silent = Completion(text="yes", finish_reason="stop")
    with pytest.raises(UntrainableRollout, match="completion_ids=None"):
        recorded_rows(written(tmp_path, game(1.0, silent)), sft())


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling(top_p=0.9)])
def test_samples_of_another_distribution_can_be_imitated_but_not_weighed(tmp_path, sampling):
    call = replace(EXACT, sampling=sampling)
    recorded = list(written(tmp_path, game(1.0, call), game(0.0, call)))
    compared = recorded_rows(recorded, grpo())
    assert [row.behavior_logprobs for row in compared] == [None, None]
    trainer = Trainer(tiny_model(), grpo(), None, cfg=settings())
    with pytest.raises(MissingLogprobs):
        trainer.update(compared)
    Trainer(tiny_model(), sft(), None, cfg=settings()).update(recorded_rows(recorded, sft())[:1])


async def test_an_algorithm_that_keeps_nothing_says_what_the_best_was(tmp_path):
    recorded = recorded_rollouts(written(tmp_path, game(-1.0), game(-0.5)))
    with pytest.raises(EmptyBatch, match=r"keeps none of 2 .* the best earned -0\.5"):
        await OfflineBatchSource(recorded, batch_size=1).next_batch(rejection_sampling())
