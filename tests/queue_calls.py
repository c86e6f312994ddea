"""Calls that tests of queues make."""

from ludic_train.cluster.queues.base import ActorReport, Trained, TrainerReport

FRESH = TrainerReport(version=0, groups_per_batch=2, group_size=4, max_lag=3)
ACTOR = ActorReport(name="one", running=0, version=0)


async def take_over(queue, trainer=FRESH, *, kept="", total=0, **known):
    return await queue.take_over(trainer, kept=kept, total=total, **known)


async def read(queue, size):
    found = []
    while len(found) < size:
        new = await queue.read(size - len(found))
        assert new, f"only {found}"
        found += new
    return found


def redis_key(key, part):
    """Name in Redis of a part of the queue `key`."""
    return f"{{{key}}}:{part}"


def trained(*entries, lag=0):
    return tuple(Trained(id=e.id, key=e.key, lag=lag) for e in entries)


def ids(entries):
    return tuple(entry.id for entry in entries)


def keys(entries):
    return [entry.key for entry in entries]


async def push(queue, *names):
    for name in names:
        await queue.push(name, name.encode())
