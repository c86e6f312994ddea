"""Batches through a queue are those of a source that plays by itself: rows, weights and metrics."""

import asyncio
import inspect
import json
import re
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle, islice

import gymnasium as gym
import pytest
from boards import free_cells

import ludic_gym  # noqa: F401 - registers the environments
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.contexts import LatestObservation
from ludic_gym.parsers import xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.reference import RandomPolicy
from ludic_gym.policies.wrappers import Parsed
from ludic_gym.records import task_key
from ludic_gym.types import Sampling, Task
from ludic_train.algorithms import presets
from ludic_train.algorithms.presets import grpo, reinforce, self_play
from ludic_train.cluster.actor import ActorOptions, run_pipeline_actor
from ludic_train.cluster.queues.open_queue import open_queue
from ludic_train.cluster.source import PipelineBatchSource
from ludic_train.sources.base import Pace
from ludic_train.sources.rollouts import Matches, RolloutBatchSource

BATCHES, GROUPS, SIZE = 3, 4, 3
CELLS = tuple(row + column for row in "ABC" for column in "123")
NEEDED = {"dr_grpo": {"max_tokens": 40}, "dapo": {"max_tokens": 4, "buffer": 2}}
PRESETS = {
    name: made
    for name, made in inspect.getmembers(presets, inspect.isfunction)
    if made.__annotations__.get("return") == "RLAlgorithm"
}


def games(number):
    """The same few games, over and over."""
    return cycle(
        Task(env_id="ludic/TicTacToe-v0", seed=seed, sampling=Sampling(seed=seed))
        for seed in range(number)
    )


def sometimes_careless(messages, sampling):
    """The first free cell, or for some seeds any cell: groups of equal and of other rewards."""
    free = free_cells(messages[-1]["content"])
    return CELLS[sampling.seed % 9] if sampling.seed % 5 == 0 else free[0]


def policy(env):
    client = ScriptedClient(sometimes_careless, policy_version=0)
    return ChatPolicy(client, LatestObservation(), system_prompt="")


def numbered(names):
    """Names that are drawn anew by every run, as numbers in the order in which they come."""
    numbers = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]


def content(batch):
    items = batch.items
    arrays = [
        (
            item.input_ids.tolist(),
            item.action_mask.tolist(),
            item.weight.tolist(),
            item.behavior_logprobs.tolist(),
            item.versions.tolist(),
            item.steps.tolist(),
            {name: values.tolist() for name, values in item.attachments.items()},
        )
        for item in items
    ]
    facts = [(item.temperature, item.truncated, item.agent) for item in items]
    groups = numbered(item.group for item in items)
    return arrays, facts, groups, numbered(item.rollout for item in items)


def of_episodes(batch):
    names = ("reward", "success", "turns", "tokens/sampled", "episodes", "rollouts/kept")
    return {name: batch.metrics[name] for name in names}


def queue_url(kind, request, tmp_path):
    if kind == "redis":
        return request.getfixturevalue("redis_server").url
    return f"file://{tmp_path}/queue.sqlite3"


@asynccontextmanager
async def actor(url, key, tasks, play, *, concurrency, name="one"):
    """An actor in the background, whose params are of version 0."""

    async def refresh():
        return 0

    stop, queue = asyncio.Event(), open_queue(url, key, max_queued=32)
    options = ActorOptions(concurrency=concurrency, heartbeat_s=0.05, grace_s=0.0)
    playing = asyncio.create_task(
        run_pipeline_actor(tasks, play, queue, refresh, options, name=name, stop=stop)
    )
    yield
    stop.set()
    await playing
    await queue.aclose()


async def begin(source, algo, version=0):
    await source.begin(
        Pace(version=version, updates_per_batch=1, oldest_lag=0, max_lag=algo.max_lag)
    )


async def through_a_queue(url, key, tasks, play, algo, *, size=SIZE, batches=BATCHES):
    """The batches of a source that an actor plays for, one group at a time."""
    source = PipelineBatchSource(open_queue(url, key), groups_per_batch=GROUPS, group_size=size)
    await begin(source, algo)
    found = []
    async with asyncio.timeout(300), actor(url, key, tasks, play, concurrency=size):
        for version in range(batches):
            found.append(await source.next_batch(algo))
            await source.trained(version + 1)
    await source.aclose()
    return found


def algorithm(name, **parts):
    return PRESETS[name](**NEEDED.get(name, {}), **parts)


def test_there_are_as_many_presets_as_are_tried():
    assert len(PRESETS) == 17


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "file") for name in PRESETS), ("scalerl", "redis")],
)
async def test_every_preset_learns_the_same_through_a_queue(name, kind, request, tmp_path):
    alone, algo = algorithm(name), algorithm(name)
    own = RolloutBatchSource(games(9), policy, groups_per_batch=GROUPS, group_size=SIZE)
    expected = [await own.next_batch(alone) for _ in range(BATCHES)]
    found = await through_a_queue(
        queue_url(kind, request, tmp_path), f"same-{name}", games(9), policy, algo
    )
    assert list(map(content, found)) == list(map(content, expected))
    assert list(map(of_episodes, found)) == list(map(of_episodes, expected))
    assert any(item.weight.any() for batch in found for item in batch.items)
    if name == "scalerl":
        assert own.history.retired


@pytest.mark.parametrize("made", [self_play, grpo], ids=["self_play", "grpo"])
async def test_both_seats_of_matches_are_credited_as_in_one_process(made, tmp_path):
    play = Matches(players=policy)
    own = RolloutBatchSource(games(9), play, groups_per_batch=GROUPS, group_size=SIZE)
    alone, algo = made(), made()
    expected = [await own.next_batch(alone) for _ in range(BATCHES)]
    url = queue_url("file", None, tmp_path)
    found = await through_a_queue(url, "matches", games(9), play, algo)
    assert list(map(content, found)) == list(map(content, expected))
    assert {item.agent for batch in found for item in batch.items} == {"player_0", "player_1"}
    if made is self_play:
        # A running mean of the returns for each seat, which batches of one seat would not give.
        assert algo.credit.state_dict() == alone.credit.state_dict() != {"means": {}}


async def test_only_learners_are_trained_on_and_sit_on_each_seat_in_turn(tmp_path):
    rivals = {"players": {"learner": policy, "rival": RandomPolicy}, "learners": {"learner"}}
    play = Matches(**rivals)
    own = RolloutBatchSource(games(9), play, groups_per_batch=GROUPS, group_size=SIZE)
    algo = reinforce()
    expected = [await own.next_batch(algo) for _ in range(BATCHES)]
    url = queue_url("file", None, tmp_path)
    found = await through_a_queue(url, "rivals", games(9), play, algo)
    assert list(map(content, found)) == list(map(content, expected))


def learner_against_random(**options):
    players, learners = {"learner": policy, "rival": RandomPolicy}, {"learner"}
    return RolloutBatchSource(games(9), Matches(players=players, learners=learners), **options)


@pytest.mark.parametrize("size", [1, 2])
async def test_seats_change_from_game_to_game_over_batches_and_resumes(size):
    straight = learner_against_random(groups_per_batch=3, group_size=size)
    batches = [await straight.next_batch(reinforce()) for _ in range(2)]
    games = {
        (i, item.group or item.rollout): item.agent
        for i, b in enumerate(batches)
        for item in b.items
    }
    assert list(games.values()) == ["player_0", "player_1"] * 3
    stopped = learner_against_random(groups_per_batch=3, group_size=size)
    await stopped.next_batch(reinforce())
    resumed = learner_against_random(groups_per_batch=3, group_size=size)
    resumed.load_state_dict(stopped.state_dict())
    assert content(await resumed.next_batch(reinforce())) == content(batches[1])


async def test_an_actor_that_plays_several_matches_at_once_changes_seats_after_each(tmp_path):
    rivals = Matches(players={"learner": policy, "rival": RandomPolicy}, learners={"learner"})
    url, algo = queue_url("file", None, tmp_path), reinforce()
    source = PipelineBatchSource(open_queue(url, "k"), groups_per_batch=8, group_size=1)
    await begin(source, algo)
    async with asyncio.timeout(120), actor(url, "k", islice(games(9), 8), rivals, concurrency=8):
        batch = await source.next_batch(algo)
    await source.aclose()
    seats = {item.group: item.agent for item in batch.items}
    assert sorted(seats.values()) == ["player_0"] * 4 + ["player_1"] * 4


def sums(*seeds):
    for seed in seeds:
        yield Task(env_id="ludic/Arithmetic-v0", seed=seed, sampling=Sampling(seed=seed))


def adds(env, *, except_for=()):
    """A policy that adds, but for the sums of these seeds."""
    wrong = [gym.make("ludic/Arithmetic-v0").reset(seed=seed)[0] for seed in except_for]

    def script(messages, sampling):
        text = messages[-1]["content"]
        right = sum(map(int, re.findall(r"\d+", text)))
        return f"<answer>{-1 if text in wrong else right}</answer>"

    client = ScriptedClient(script, policy_version=0)
    return Parsed(
        ChatPolicy(client, LatestObservation(), system_prompt=""), xml_tag_parser("answer")
    )


async def test_pass_rates_of_tasks_are_kept_over_batches_actors_and_a_resume(tmp_path):
    url, algo = queue_url("file", None, tmp_path), reinforce(retire_at=0.75)
    names = {task_key(task): task.seed for task in sums(0, 1, 2)}
    state, seen = None, []

    async def train(batches):
        """Train on batches of two groups of two, as a run that is resumed where it stopped."""
        nonlocal state
        source = PipelineBatchSource(open_queue(url, "k"), groups_per_batch=2, group_size=2)
        if state is not None:
            source.load_state_dict(json.loads(json.dumps(state)))
        await begin(source, algo)
        for _ in range(batches):
            await source.next_batch(algo)
            await source.trained(0)
            plays = source.history.state_dict()["plays"]
            seen.append({names[task]: tuple(counts) for task, counts in plays.items()})
        state = source.state_dict()
        await source.aclose()
        return {names[task] for task in source.history.retired}

    async with asyncio.timeout(120):
        # 3 of 4 rollouts have to succeed, of all that were played.
        async with actor(url, "k", sums(0, 1), partial(adds, except_for=[1]), concurrency=2):
            assert await train(1) == {0}
        others = partial(adds, except_for=[2])
        async with actor(url, "k", cycle(sums(0, 1, 2)), others, concurrency=2, name="two"):
            assert await train(1) == {0}
            assert await train(3) == {0, 1}
    assert seen == [
        {0: (2, 2), 1: (0, 2)},
        {0: (2, 2), 1: (2, 4), 2: (0, 2)},
        {0: (2, 2), 1: (4, 6), 2: (0, 4)},
        {0: (2, 2), 1: (6, 8), 2: (0, 6)},
        {0: (2, 2), 1: (6, 8), 2: (0, 10)},
    ]
