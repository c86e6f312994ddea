"""Settings and states that a source refuses."""

from dataclasses import replace

import pytest
from queued_groups import ALGO, NEW, begin

from ludic_gym.errors import ConfigError
from ludic_train.errors import CheckpointError
from ludic_train.sources.base import Pace
from ludic_train.trainer.config import TrainerConfig


@pytest.mark.parametrize(
    ("cfg", "max_lag"),
    [
        (TrainerConfig(minibatches=4), 2),
        (TrainerConfig(publish_every=3), 1),
        (TrainerConfig(minibatches=2, epochs=2, publish_every=3), 4),
    ],
)
async def test_a_lag_that_training_can_never_keep_is_refused(opened, cfg, max_lag):
    pace = Pace(
        version=0,
        updates_per_batch=cfg.updates_per_batch,
        oldest_lag=cfg.oldest_lag,
        max_lag=max_lag,
    )
    with pytest.raises(ConfigError, match=f"set max_lag={max_lag + 1} or more"):
        await opened().begin(pace)
    await opened().begin(replace(pace, max_lag=max_lag + 1))


@pytest.mark.parametrize(
    "options", [{"groups_per_batch": 0}, {"group_size": 0}, {"hold": -1}, {"max_attempts": 0}]
)
def test_numbers_that_make_no_sense_are_refused(opened, options):
    ((name, value),) = options.items()
    with pytest.raises(ConfigError, match=f"{name}={value}.* at least"):
        opened(**options)


async def test_a_batch_without_a_beginning_is_refused(opened):
    with pytest.raises(ConfigError, match="call begin"):
        await opened().next_batch(ALGO)


async def test_a_state_that_comes_too_late_is_refused(opened):
    source = opened()
    await begin(source)
    with pytest.raises(ConfigError, match="read already"):
        source.load_state_dict({"cursor": "", "trained": 0, "history": NEW})


async def test_a_run_that_played_by_itself_is_not_resumed_from_a_queue(opened):
    with pytest.raises(CheckpointError, match=r"\['history', 'taken'\]: .* not learn from a queue"):
        opened().load_state_dict({"taken": 3, "history": NEW})
