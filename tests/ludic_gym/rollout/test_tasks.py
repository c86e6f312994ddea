import time
from itertools import islice

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludic_gym as lg
from ludic_gym.errors import ConfigError
from ludic_gym.rollout.tasks import by_group, grouped
from ludic_gym.types import Episode, Sampling, Task


class Numbers(lg.TextEnv):
    """Rows without a meaning; as many as are wanted."""

    made = 0

    def __init__(self, rows=3, render_mode=None):
        super().__init__(render_mode)
        self.num_rows = rows
        Numbers.made += 1

    def start(self, options):
        return str(options["row"]), ""

    def turn(self, action):
        return lg.end(success=True)


gym.register("rows/Numbers-v0", Numbers)
SIZES = st.integers(1, 12)
SEEDS = st.none() | st.integers(0, 5)


def tasks(rows, **options):
    return lg.dataset_tasks("rows/Numbers-v0", {"rows": rows}, **options)


def rows_in(tasks):
    return [task.options["row"] for task in tasks]


@given(rows=SIZES, seed=SEEDS, epochs=st.integers(1, 4))
def test_every_epoch_has_every_row_once(rows, seed, epochs):
    found = rows_in(tasks(rows, shuffle_seed=seed, epochs=epochs))
    assert len(found) == rows * epochs
    for epoch in range(epochs):
        assert sorted(found[epoch * rows : (epoch + 1) * rows]) == list(range(rows))


@given(rows=SIZES, seed=SEEDS, epochs=st.integers(1, 4), parts=st.integers(1, 6))
def test_every_task_is_in_exactly_one_shard(rows, seed, epochs, parts):
    options = {"shuffle_seed": seed, "epochs": epochs}
    whole = list(tasks(rows, **options))
    shards = [list(tasks(rows, shard=(part, parts), **options)) for part in range(parts)]
    assert sum(map(len, shards)) == len(whole)
    # Shard i has the tasks i, i + n, i + 2n ... of all.
    assert all(shards[g % parts][g // parts] == task for g, task in enumerate(whole))


@given(
    rows=SIZES,
    seed=SEEDS,
    epochs=st.none() | st.integers(1, 3),
    shard=st.integers(1, 4).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))),
    start=st.integers(0, 40),
)
def test_tasks_from_a_position_on_are_those_of_an_uninterrupted_run(
    rows, seed, epochs, shard, start
):
    options = {"shuffle_seed": seed, "epochs": epochs, "shard": shard}
    uninterrupted = list(islice(tasks(rows, **options), 80))
    assert list(islice(tasks(rows, start=start, **options), 40)) == uninterrupted[start:][:40]


def test_orders_differ_by_epoch_and_by_seed_and_are_the_rows_own_without_one():
    first, second = (rows_in(tasks(20, shuffle_seed=seed, epochs=2)) for seed in (1, 2))
    assert first[:20] != first[20:]
    assert first[:20] != second[:20]
    assert first == rows_in(tasks(20, shuffle_seed=1, epochs=2))
    assert rows_in(tasks(3, epochs=2)) == [0, 1, 2, 0, 1, 2]


def test_a_row_is_one_task_in_every_epoch_and_every_sample_has_a_seed_of_its_own():
    sampling = lg.Sampling(temperature=0.5, seed=99)
    found = list(tasks(2, epochs=2, seed=10, sampling=sampling, max_turns=4, attempts=2))
    assert [task.seed for task in found] == [10, 11, 10, 11]
    assert [task.sampling.seed for task in found] == [10, 11, 12, 13]
    assert {(t.sampling.temperature, t.max_turns, t.attempts) for t in found} == {(0.5, 4, 2)}


def test_a_start_far_on_takes_no_time():
    began = time.process_time()
    (task,) = islice(tasks(10, shuffle_seed=3, shard=(1, 4), start=10**12), 1)
    assert time.process_time() - began < 0.5
    assert task.sampling.seed == 4 * 10**12 + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shard": (4, 4)}, r"shard is \(i, n\) .* got \(4, 4\)"),
        ({"shard": (-1, 2)}, r"got \(-1, 2\)"),
        ({"epochs": 0}, "epochs is at least 1, .* got 0"),
        ({"start": -1}, "start is .* got -1"),
        ({"seed": -1}, "seed is 0 or more, got -1"),
        ({"shuffle_seed": -1}, "shuffle_seed is .* got -1"),
        ({"max_turns": 0}, "max_turns is at least 1, got 0"),
    ],
)
def test_numbers_that_cannot_work_are_refused_before_the_first_task(options, message):
    with pytest.raises(lg.ConfigError, match=message):
        tasks(3, **options)


def test_members_share_the_env_seed_and_the_group_but_not_the_sampling_seed():
    task = Task(env_id="e", seed=5, sampling=Sampling(seed=1, temperature=0.5))
    members = list(grouped([task], 4))

    assert {member.seed for member in members} == {5}
    assert len({member.group for member in members}) == 1
    assert len({member.sampling.seed for member in members}) == 4
    assert {member.sampling.temperature for member in members} == {0.5}


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


def test_without_a_sampling_seed_every_call_draws_new_ones():
    task = Task(env_id="e", seed=1)
    seeds = [m.sampling.seed for _ in range(2) for m in grouped([task], 2)]

    assert len(set(seeds)) == 4
    assert None not in seeds


def test_a_task_without_a_seed_cannot_be_grouped():
    with pytest.raises(ConfigError, match="seed=None"):
        list(grouped([Task(env_id="e")], 2))


async def stream(*groups):
    for index, group in enumerate(groups):
        yield Episode(index=index, task=Task(env_id="e", group=group))


async def test_groups_are_delivered_whole_and_in_the_order_of_their_tasks():
    batches = [batch async for batch in by_group(stream("a", "b", "b", "a", "c"), 2)]

    assert [[e.index for e in batch] for batch in batches] == [[1, 2], [0, 3], [4]]
