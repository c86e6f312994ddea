"""Several updates from one batch, of which some rows cannot be learned from."""

from dataclasses import replace

import numpy as np
from two_ranks.learning import MOST_TOKENS, random_rows, settings, tiny_model

from ludic_train.algorithms.presets import grpo
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.trainer.prepare import minibatches
from ludic_train.trainer.trainer import Trainer


def four_rows(seed=0):
    return [row for row in random_rows(20, seed) if row.action_mask.any()][:4]


def long_row():
    size = MOST_TOKENS + 1
    return replace(
        random_rows(1)[0],
        input_ids=np.full(size, 5, np.int32),
        action_mask=np.arange(size) > 2,
        weight=np.ones(size, np.float32),
        behavior_logprobs=np.full(size, -5.0, np.float32),
        versions=np.zeros(size, np.int32),
    )


async def test_a_row_that_is_too_long_ends_no_run_where_it_would_be_a_part_by_itself():
    rows = [replace(r, rollout=str(i)) for i, r in enumerate([*four_rows(), long_row()])]
    source = OfflineBatchSource(rows, batch_size=5)
    cfg, seen = replace(settings(), minibatches=5), []
    trainer = Trainer(tiny_model(), grpo(), source, cfg=cfg)
    await trainer.train(8, lambda _, metrics: seen.append(metrics))
    assert [m["rows"].value for m in seen] == [1] * 8
    # Once per batch, in the first of its updates.
    assert [m["rows/overlong"].value for m in seen] == [1, 0, 0, 0] * 2


def test_rows_that_get_too_old_meanwhile_are_in_the_first_update():
    old, new = (
        [
            replace(row, versions=np.where(row.action_mask, version, -1), rollout=f"{version}-{i}")
            for i, row in enumerate(four_rows(seed=version))
        ]
        for version in (4, 6)
    )
    cfg = replace(settings(), minibatches=4)
    trainer = Trainer(tiny_model(), grpo(max_lag=3), None, cfg=cfg)
    trainer.version = 6
    made = trainer.update([*old, *new])
    # Of age 2, which is more than 3 at the third and fourth update.
    assert [m["rows"].value for m in made] == [5, 1, 1, 1]
    assert sum(m["rows/stale"].value for m in made) == 0


def test_a_rollout_is_left_out_whole_where_one_of_its_rows_is_too_old():
    young, old = (
        replace(row, versions=np.where(row.action_mask, version, -1), rollout="both")
        for row, version in zip(four_rows()[:2], (6, 1), strict=True)
    )
    alone = replace(four_rows()[2], versions=None, rollout="alone")
    trainer = Trainer(tiny_model(), grpo(max_lag=3), None, cfg=settings())
    trainer.version = 6
    (made,) = trainer.update([young, old, alone])
    assert (made["rows"].value, made["rows/stale"].value) == (1, 2)


def test_a_batch_is_cut_by_seed_and_version_so_that_no_two_are_cut_alike():
    rows = [replace(row, rollout=str(i)) for i, row in enumerate(random_rows(20))]
    cfg = replace(settings(), minibatches=2)

    def parts(version):
        cut = minibatches(rows, cfg, grpo(), version)
        return [sorted(row.rollout for row in part) for part in cut]

    assert parts(version=2) == parts(version=2)
    assert parts(version=2) != parts(version=4)
