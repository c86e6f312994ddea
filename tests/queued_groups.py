"""Groups of rollouts in a queue, and the trainer's end of it."""

from dataclasses import replace

from trajectories import call, rollout

from ludic_train.algorithms.presets import sft
from ludic_train.cluster.codec import RolloutGroup, group_to_bytes
from ludic_train.rows import trajectory_from
from ludic_train.sources.base import Pace, TaskHistory

ALGO = sft()
NEW = TaskHistory().state_dict()


def group(key, *, version=0, rewards=(0.0, 1.0), token=5, metrics=None, task=""):
    """A group of a rollout per reward, each a row of two tokens, the last sampled by `version`."""
    made = [
        trajectory_from(rollout((call([token], [token], version=version),), rewards=[reward]))
        for reward in rewards
    ]
    known = tuple(replace(one, group=key, task=task or key) for one in made)
    return RolloutGroup(key=key, trajectories=known, metrics=metrics or {})


async def begin(source, version=0, *, max_lag=2, updates=1):
    """Begin as a trainer of `updates` per batch does that has made `version` of them."""
    pace = Pace(version=version, updates_per_batch=updates, oldest_lag=updates - 1, max_lag=max_lag)
    await source.begin(pace)


async def push(queue, *groups):
    for each in groups:
        await queue.push(each.key, group_to_bytes(each))


def names(batch):
    return list(dict.fromkeys(item.group for item in batch.items))
