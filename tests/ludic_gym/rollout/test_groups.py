import itertools

import pytest

from ludic_gym.errors import ConfigError
from ludic_gym.rollout.tasks import by_group, grouped
from ludic_gym.types import Episode, Sampling, Task


def test_members_share_the_env_seed_and_the_group_but_not_the_sampling_seed():
    task = Task(env_id="e", seed=5, sampling=Sampling(seed=1, temperature=0.5))
    members = list(grouped([task], 4))

    assert {member.seed for member in members} == {5}
    assert len({member.group for member in members}) == 1
    assert len({member.sampling.seed for member in members}) == 4
    assert {member.sampling.temperature for member in members} == {0.5}


def test_groups_follow_from_the_tasks_alone():
    tasks = [Task(env_id="e", seed=i, sampling=Sampling(seed=7)) for i in range(3)]

    assert list(grouped(tasks, 2)) == list(grouped(tasks, 2))


@pytest.mark.parametrize(
    "other",
    [
        {"env_id": "f"},
        {"seed": 2},
        {"kwargs": {"n": 1}},
        {"options": {"row": 1}},
        {"sampling": Sampling(seed=2)},
        {"sampling": Sampling(seed=1, temperature=0.5)},
        {"max_turns": 3},
        {"group": "mine"},
    ],
)
def test_tasks_that_differ_never_share_a_group(other):
    same = {"env_id": "e", "seed": 1, "sampling": Sampling(seed=1)}
    (first,) = grouped([Task(**same)], 1)
    (second,) = grouped([Task(**{**same, **other})], 1)

    assert first.group != second.group


def test_a_task_that_comes_twice_makes_two_groups():
    task = Task(env_id="e", seed=1, sampling=Sampling(seed=1))

    assert len({member.group for member in grouped([task, task], 2)}) == 2


def test_without_a_sampling_seed_every_call_draws_new_ones():
    task = Task(env_id="e", seed=1)
    seeds = [m.sampling.seed for _ in range(2) for m in grouped([task], 2)]

    assert len(set(seeds)) == 4
    assert None not in seeds


def test_endless_tasks_are_grouped_as_they_come():
    endless = (Task(env_id="e", seed=i) for i in itertools.count())

    seeds = [member.seed for member in itertools.islice(grouped(endless, 2), 4)]

    assert seeds == [0, 0, 1, 1]


def test_a_task_without_a_seed_cannot_be_grouped():
    with pytest.raises(ConfigError, match="seed=None"):
        list(grouped([Task(env_id="e")], 2))


def test_a_group_of_none_is_refused():
    with pytest.raises(ConfigError, match="size=0"):
        grouped([], 0)


async def stream(*groups):
    for index, group in enumerate(groups):
        yield Episode(index=index, task=Task(env_id="e", group=group))


async def test_groups_are_delivered_whole_and_in_the_order_of_their_tasks():
    batches = [batch async for batch in by_group(stream("a", "b", "b", "a", "c"), 2)]

    assert [[e.index for e in batch] for batch in batches] == [[1, 2], [0, 3], [4]]
