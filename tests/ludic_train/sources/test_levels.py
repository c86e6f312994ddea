"""Schedules of levels: when they move, what is drawn, and what a resumed run keeps."""

import asyncio
import json
import re
from collections import Counter
from dataclasses import replace
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trajectories import trajectory

from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.contexts import LatestObservation
from ludic_gym.errors import ConfigError
from ludic_gym.parsers import xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.wrappers import Parsed
from ludic_train.algorithms.presets import grpo, reinforce
from ludic_train.cluster.actor import ActorOptions, run_pipeline_actor
from ludic_train.cluster.queues.open_queue import open_queue
from ludic_train.cluster.source import PipelineBatchSource
from ludic_train.errors import CheckpointError, EmptyBatch
from ludic_train.metrics import Stat
from ludic_train.runs.recipe import recipe_for, with_curriculum
from ludic_train.runs.tasks import levels_of, training_tasks
from ludic_train.sources.base import Pace
from ludic_train.sources.levels import Levels, LevelSchedule, drawn_level
from ludic_train.sources.rollouts import RolloutBatchSource

SUMS = "ludic/Arithmetic-v0"
THREE = {"x/X-v0": [{"n": 1}, {"n": 2}, {"n": 3}]}
KEYS = {f"key {level}": ("x/X-v0", level) for level in range(3)}
RULE = LevelSchedule(levels=THREE, raise_at=0.75, lower_at=0.25, window=2)


def group(level, successes, name):
    """A group of two rollouts at a level, of which so many succeed."""
    return [
        trajectory(0.0, group=name, env_key=f"key {level}", info={"success": i < successes})
        for i in range(2)
    ]


def batch(*groups):
    """Trajectories of groups (level, successes of two), in order."""
    return [one for i, (level, won) in enumerate(groups) for one in group(level, won, f"g{i}")]


def test_a_level_rises_and_falls_with_the_last_groups_at_it():
    levels = Levels(RULE, KEYS)

    def after(*groups):
        levels.note(batch(*groups))
        return levels.current["x/X-v0"]

    assert after((0, 2)) == 0  # one group is less than the window of two
    assert after((0, 0)) == 0  # (1 + 0) / 2 is below 0.75
    assert after((0, 2)) == 0  # the last two: (0 + 1) / 2
    assert after((0, 1)) == 1  # (1 + 0.5) / 2 = 0.75
    assert after((1, 2)) == 1  # the window begins anew
    assert after((0, 0), (2, 0)) == 1  # groups of other levels do not count
    assert after((1, 1)) == 2  # (1 + 0.5) / 2
    assert after((2, 2), (2, 2)) == 2  # there is no further level
    assert after((2, 0)) == 2  # (1 + 0) / 2
    assert after((2, 0)) == 1  # 0 is below 0.25
    assert after((1, 0), (1, 1)) == 1  # 0.25 is not
    assert after((1, 0)) == 1  # (0.5 + 0) / 2 is not either
    assert after((1, 0), (0, 0), (0, 0)) == 0  # one level at a time, and never below the first


def test_the_groups_of_a_batch_count_in_their_order():
    # The second group raises the level, after which the other groups of level 0 are of the past.
    levels = Levels(RULE, KEYS)
    metrics = levels.note(batch((0, 2), (0, 2), (0, 0), (0, 0), (1, 1)))
    assert levels.state_dict() == {"current": {"x/X-v0": 1}, "recent": {"x/X-v0": [0.5]}}
    assert metrics == {"success/level_0": Stat(4, 8), "success/level_1": Stat(1, 2)}
    assert levels.metrics() == {"level": Stat(1, 1)}


def test_environments_have_levels_of_their_own_under_their_names():
    two = replace(RULE, levels={**THREE, "y/Y-v0": [{}, {"hard": True}]}, window=1)
    levels = Levels(two, {**KEYS, "y": ("y/Y-v0", 0)})
    metrics = levels.note([*batch((0, 0)), trajectory(1.0, env_key="y", info={"success": True})])
    assert levels.current == {"x/X-v0": 0, "y/Y-v0": 1}
    assert levels.metrics()["level/y/Y-v0"] == Stat(1, 1)
    assert metrics["success/level_0/x/X-v0"] == Stat(0, 2)
    levels.note([trajectory(1.0, env_key="of a stranger", info={"success": True})])
    assert levels.current == {"x/X-v0": 0, "y/Y-v0": 1}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=60), st.data())
def test_levels_stay_in_range_and_go_on_from_any_state(groups, data):
    cut = data.draw(st.integers(0, len(groups)))
    straight, first, second = (Levels(RULE, KEYS) for _ in range(3))
    for one in groups:
        before = straight.current["x/X-v0"]
        straight.note(batch(one))
        now = straight.current["x/X-v0"]
        assert 0 <= now <= 2
        assert abs(now - before) <= (one[0] == before)
    # Cut into batches anywhere, and resumed from JSON between them.
    first.note(batch(*groups[:cut]))
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    second.note(batch(*groups[cut:]))
    assert second.state_dict() == straight.state_dict()


def test_a_share_of_the_tasks_is_of_the_easier_levels_equally():
    drawn = Counter(drawn_level(replace(RULE, easier=0.3), 2, number) for number in range(4_000))
    # 0.7, 0.15 and 0.15 of 4,000, within 4 standard deviations of the binomial.
    assert drawn[2] == pytest.approx(2_800, abs=116)
    assert drawn[0] == pytest.approx(600, abs=91)
    assert drawn[1] == pytest.approx(600, abs=91)
    assert {drawn_level(RULE, 0, number) for number in range(100)} == {0}
    assert {drawn_level(replace(RULE, easier=0.0), 2, number) for number in range(100)} == {2}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"levels": {"x/X-v0": [{}]}}, "x/X-v0 has 1 levels"),
        ({"levels": {"x/X-v0": [{"n": 1}, {}, {"n": 1}]}}, "{'n': 1} twice"),
        ({"raise_at": 1.2}, r"raise_at=1\.2"),
        ({"raise_at": 0.2, "lower_at": 0.2}, r"lower_at=0\.2"),
        ({"window": 0}, "window=0"),
        ({"easier": 1.0}, r"easier=1\.0"),
    ],
)
def test_schedules_that_cannot_work_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        replace(RULE, **wrong)


def adds(below):
    """A policy that adds numbers below a limit, and is wrong above it."""

    def script(messages, sampling):
        numbers = [int(found) for found in re.findall(r"\d+", messages[-1]["content"])]
        right = sum(numbers) if max(numbers) < below else -1
        return f"<answer>{right}</answer>"

    def make_policy(env):
        chat = ChatPolicy(ScriptedClient(script, policy_version=0), LatestObservation())
        return Parsed(chat, xml_tag_parser("answer"))

    return make_policy


def sums(**rule):
    """A recipe of sums of one, two and four digits."""
    recipe = recipe_for([SUMS], model="m", env_kwargs={"operations": "+"})
    recipe = with_curriculum(recipe)
    return replace(recipe, curriculum=replace(recipe.curriculum, **rule))


def playing(recipe, make_policy=None, level=0):
    """A source of four groups that goes on at a level of sums."""
    levels = levels_of(recipe)
    levels.load_state_dict({"current": {SUMS: level}, "recent": {SUMS: []}})
    tasks = training_tasks(recipe, recipe.defaults, 0, levels.current)
    play = make_policy or adds(100)
    return RolloutBatchSource(tasks, play, groups_per_batch=4, group_size=2, levels=levels)


async def played(source, batches):
    """Rows and metrics of batches."""
    found = []
    for _ in range(batches):
        batch = await source.next_batch(reinforce())
        rows = [(row.input_ids.tolist(), row.weight.tolist()) for row in batch.items]
        found.append((rows, batch.metrics["level"].value, sorted(batch.metrics)))
    return found


async def test_a_source_plays_harder_tasks_and_a_resumed_one_the_same_ones():
    recipe = sums(window=6, raise_at=1.0)
    straight, before, after = (playing(recipe) for _ in range(3))
    expected = await played(straight, 6)
    # Six groups of level 0 end in the second batch of four. With two tasks of the third drawn from
    # level 0, six of level 1 end in the fourth. Level 2 is above the policy: back after six.
    assert [level for _, level, _ in expected] == [0, 1, 1, 2, 2, 1]
    first = await played(before, 2)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert [*first, *await played(after, 4)] == expected


BACK = {"window": 40, "lower_at": 0.5, "easier": 0.0}


async def test_batches_without_a_row_lower_the_level():
    # Nothing is right, so all rewards are equal. Four groups in each of ten batches fill a window.
    source = playing(sums(**BACK), adds(0), level=2)
    with pytest.raises(EmptyBatch, match="40 batches"):
        # Twice ten batches down to the first level, and twenty there.
        await source.next_batch(grpo())
    assert (source.levels.current, source.taken) == ({SUMS: 0}, 160)


async def test_a_level_that_fails_leads_to_one_that_teaches():
    policies = cycle([adds(0), adds(10)])
    # One of the two members of each group adds numbers of one digit.
    source = playing(sums(**BACK), lambda env: next(policies)(env), level=2)
    batch = await source.next_batch(grpo())
    assert batch.items
    assert batch.metrics["level"] == Stat(0, 1)
    # Ten batches of eight episodes at level 2, ten at level 1, and this one.
    assert [batch.metrics[f"success/level_{n}"].count for n in range(3)] == [8, 80, 80]


async def test_a_schedule_that_never_goes_back_ends_after_twenty_batches():
    source = playing(sums(lower_at=0.0), adds(0), level=2)
    with pytest.raises(EmptyBatch, match="20 batches"):
        await source.next_batch(grpo())
    assert source.levels.current == {SUMS: 2}


async def test_a_checkpoint_of_a_run_without_a_curriculum_is_refused():
    recipe = sums()
    plain = RolloutBatchSource(iter([]), adds(10), groups_per_batch=1)
    with pytest.raises(CheckpointError, match="run without"):
        playing(recipe).load_state_dict(plain.state_dict())
    with pytest.raises(CheckpointError, match="run with a"):
        plain.load_state_dict(playing(recipe).state_dict())


async def test_the_trainer_moves_the_levels_of_its_actors_over_a_resume(tmp_path):
    recipe, url = sums(window=4, raise_at=1.0, lower_at=0.0), f"file://{tmp_path / 'queue.db'}"
    stop, current, seen, state = asyncio.Event(), {}, [], None
    tasks = training_tasks(recipe, recipe.defaults, 7, current)
    actor_queue = open_queue(url, "k")

    async def version():
        return 0

    acting = asyncio.create_task(
        run_pipeline_actor(
            tasks,
            adds(100),
            actor_queue,
            version,
            ActorOptions(group_size=2, concurrency=4, heartbeat_s=0.05, grace_s=0.0),
            stop=stop,
            levels=current,
        )
    )
    async with asyncio.timeout(120):
        # Two trainers, one after the other: the second knows from the checkpoint where it is.
        for batches in (4, 8):
            levels = levels_of(recipe)
            source = PipelineBatchSource(
                open_queue(url, "k"), groups_per_batch=2, group_size=2, levels=levels
            )
            if state is not None:
                source.load_state_dict(json.loads(json.dumps(state)))
            # Room for four groups: an actor must not play far ahead at an old level.
            pace = Pace(version=0, updates_per_batch=1, oldest_lag=0, max_lag=1)
            await source.begin(pace)
            for _ in range(batches):
                batch = await source.next_batch(reinforce())
                await source.trained(0)
                seen.append(batch.metrics["level"].value)
            state = source.state_dict()
            status = await source.status()
            assert json.loads(status.trainer.levels) == levels.current
            await source.aclose()
        while current.get(SUMS) != 2:  # the next report of the actor
            await asyncio.sleep(0.01)
        # Two batches of two groups raise the first level, at once in the trainer.
        assert seen[:2] == [0, 1]
        assert seen == sorted(seen)
        stop.set()
        await acting
    await actor_queue.aclose()
    assert seen[-1] == 2
