import asyncio
import json
import string
from itertools import count, cycle, islice
from typing import ClassVar

import gymnasium as gym
import pytest
from boards import free_cells

import ludic_gym  # noqa: F401 - registers the environments
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.contexts import LatestObservation
from ludic_gym.envs.core.base import TextEnv, end
from ludic_gym.errors import GraderError, SandboxError
from ludic_gym.parsers import xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.wrappers import Parsed
from ludic_gym.records import task_key
from ludic_gym.types import Sampling, Task
from ludic_train.algorithms.filters import drop_truncated
from ludic_train.algorithms.presets import grpo, ppo, reinforce
from ludic_train.errors import CheckpointError, EmptyBatch, UntrainableRollout
from ludic_train.metrics import Stat
from ludic_train.sources.rollouts import RolloutBatchSource
from ludic_train.types import REWARDS

LEGAL = tuple(row + column for row in "ABC" for column in "123")


def games(start=0):
    # Games that end in all ways, so that few groups earn equal rewards.
    rival = {"opponent": "random"}
    for seed in count(start):
        sampling = Sampling(seed=seed)
        yield Task(env_id="ludic/TicTacToe-v0", kwargs=rival, seed=seed, sampling=sampling)


def a_cell(messages, sampling):
    """Any cell of the board, by the seed: often taken, so that games end in all ways."""
    return LEGAL[sampling.seed % 9]


def first_free_cell(messages, sampling):
    return free_cells(messages[-1]["content"])[0]


def source(script=a_cell, *, tasks=None, play=None, **options):
    client = ScriptedClient(script, policy_version=3)
    options = {"groups_per_batch": 4, "group_size": 3, **options}
    return RolloutBatchSource(
        games() if tasks is None else tasks,
        play or (lambda env: ChatPolicy(client, LatestObservation(), system_prompt="")),
        **options,
    )


def content(batch):
    return [
        (item.input_ids.tolist(), item.weight.tolist(), item.versions.tolist(), item.group)
        for item in batch.items
    ]


async def test_a_batch_has_a_row_per_turn_with_the_credit_of_its_group():
    batch = await source().next_batch(grpo())
    assert {tuple(item.versions[item.action_mask]) for item in batch.items} == {(3, 3, 3)}
    for group in {item.group for item in batch.items}:
        weights = {w for i in batch.items if i.group == group for w in i.weight[i.action_mask]}
        assert min(weights) < 0 < max(weights)


async def test_metrics_count_all_episodes_those_filtered_away_too():
    batch = await source().next_batch(reinforce(filter=lambda rollouts: rollouts[:5]))
    assert batch.metrics["rollouts/kept"].value == 5 / 12
    assert batch.metrics["episodes"].value == 12
    assert batch.metrics["episodes/failed"].value == 0
    assert -1 <= batch.metrics["reward"].value <= 1
    assert batch.metrics["tokens/completion"].value == 3  # such as A, 1, end of turn


async def test_equal_sources_give_equal_batches_at_any_concurrency():
    one, other = source(concurrency=1), source(concurrency=64)
    for _ in range(3):
        assert content(await one.next_batch(grpo())) == content(await other.next_batch(grpo()))


async def test_a_source_goes_on_where_another_stopped():
    first = source()
    await first.next_batch(grpo())
    second = source()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert content(await second.next_batch(grpo())) == content(await first.next_batch(grpo()))


async def test_groups_of_equal_rewards_alone_make_no_batch():
    with pytest.raises(EmptyBatch, match="20 batches"):
        await source(lambda messages, sampling: "no move").next_batch(grpo())


async def test_tasks_that_run_out_are_told():
    playing = source(tasks=islice(games(), 4))
    await playing.next_batch(reinforce())
    with pytest.raises(EmptyBatch, match="ran out after 4"):
        await playing.next_batch(reinforce())


@pytest.mark.parametrize(("group_size", "left"), [(3, 11), (2, 6)])
async def test_a_failed_episode_leaves_the_rest_of_its_group_but_no_single_one(group_size, left):
    broken = iter([True])

    def script(messages, sampling):
        if next(broken, False):
            raise RuntimeError("the endpoint is down")
        return a_cell(messages, sampling)

    batch = await source(script, group_size=group_size).next_batch(reinforce())
    assert batch.metrics["episodes/failed"].value == pytest.approx(1 / (4 * group_size))
    assert batch.metrics["rollouts/kept"].count == left


class Judged(gym.Env):
    """One turn, rewarded with 1; the grader of seed 0 comes to no verdict once."""

    observation_space = action_space = gym.spaces.Text(500, charset=string.printable)
    metadata = {"render_modes": []}  # noqa: RUF012
    faults: ClassVar[list[Exception]] = []

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return "Say A or B.", {}

    def step(self, action):
        if Judged.faults:
            raise Judged.faults.pop()
        return "Over.", float(action == "A1"), True, False, {"success": action == "A1"}


gym.register("sources/Judged-v0", Judged)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (GraderError("no verdict"), "environment"),
        (KeyError("board"), "environment"),
        (SandboxError("no place"), "infrastructure"),
    ],
)
async def test_an_end_by_others_is_dropped_with_its_cause_and_never_a_reward_of_0(fault, cause):
    Judged.faults.append(fault)
    tasks = (Task(env_id="sources/Judged-v0", seed=i, sampling=Sampling(seed=i)) for i in count())
    playing = source(lambda messages, sampling: "A1", tasks=tasks, group_size=3)
    batch = await playing.next_batch(reinforce())
    # Eleven of twelve, each with the reward 1.
    assert batch.metrics["reward"] == Stat(sum=11.0, count=11)
    assert batch.metrics["rollouts/kept"].count == 11
    other = {"environment": "infrastructure", "infrastructure": "environment"}[cause]
    assert batch.metrics[f"episodes/failed_{cause}"] == Stat(sum=1.0, count=12)
    assert batch.metrics[f"episodes/failed_{other}"] == Stat(sum=0.0, count=12)


async def test_an_untrainable_client_is_named_before_equal_groups_are_dropped():
    greedy = (
        Task(env_id="ludic/TicTacToe-v0", seed=i, sampling=Sampling(temperature=0.0, seed=i))
        for i in count()
    )
    with pytest.raises(UntrainableRollout, match=r"temperature=0\.0"):
        await source(lambda messages, sampling: "5", tasks=greedy).next_batch(grpo())


def test_a_run_through_a_queue_is_not_resumed_without_one():
    with pytest.raises(CheckpointError, match="queue"):
        source().load_state_dict({"cursor": "", "trained": 0})


async def test_groups_that_are_dropped_are_replaced_where_the_algorithm_says_so():
    short = await source().next_batch(grpo())
    assert len({item.group for item in short.items}) < 4
    full = await source().next_batch(grpo(full_batches=True))
    assert len({item.group for item in full.items}) == 4
    assert full.metrics["episodes"].value > 12


async def test_tasks_that_are_solved_are_not_played_again():
    def few_games():
        while True:
            yield from islice(games(), 12)

    algo = reinforce(retire_at=0.01)
    options = {"groups_per_batch": 12, "group_size": 8}
    playing = source(first_free_cell, tasks=few_games(), **options)
    first = await playing.next_batch(algo)
    assert first.metrics["success"].value > 0
    solved = len(playing.history.retired)
    assert 0 < solved < 12
    again = source(first_free_cell, tasks=few_games(), **options)
    again.load_state_dict(playing.state_dict())
    await again.next_batch(algo)
    # Each pass over the 12 games gives only those that are left.
    passes = 12 // (12 - solved)
    assert again.taken > 12 + 12 * (passes - 1)


async def test_endless_tasks_that_are_all_solved_end_the_search():
    playing = source(tasks=cycle(islice(games(), 12)))
    retired = {task_key(task): None for task in islice(games(), 12)}
    playing.history.retired |= retired
    with pytest.raises(EmptyBatch, match="1000 retired"):
        await playing.next_batch(reinforce())


async def test_rewards_are_attached_for_algorithms_that_ask():
    batch = await source().next_batch(ppo())
    for item in batch.items:
        assert item.attachments[REWARDS][item.action_mask][-1] == item.weight.sum() / 3


async def test_metrics_of_ones_own_are_reduced_from_all_rollouts():
    def first_moves(rollouts):
        moves = [LEGAL.index(r.steps[0].decision.action) for r in rollouts]
        return {"first_move": Stat.of([float(move) for move in moves])}

    batch = await source(first_free_cell, reducer=first_moves).next_batch(reinforce())
    assert batch.metrics["first_move"] == Stat(batch.metrics["first_move"].sum, 12)
    assert 0 <= batch.metrics["first_move"].value <= 1


def sums():
    for seed in count():
        yield Task(env_id="ludic/Arithmetic-v0", seed=seed, sampling=Sampling(seed=seed))


def forgetful(env):
    """Forgets the tag under an even seed, and writes it once a reply has told it to."""

    def reply(messages, sampling):
        told = len(messages) > 2
        return (
            f"<answer>{env.unwrapped.oracle_action()}</answer>"
            if told or sampling.seed % 2
            else "hm"
        )

    return Parsed(ChatPolicy(ScriptedClient(reply)), xml_tag_parser("answer"))


async def test_a_format_failure_is_learned_from_although_truncated_rollouts_are_dropped():
    trainable = grpo(filter=drop_truncated)
    batch = await source(tasks=sums(), play=forgetful, groups_per_batch=8).next_batch(trainable)

    # One row and one turn for each of the 24 episodes: none got a second attempt or was dropped.
    assert len(batch.items) == 24
    assert batch.metrics["turns"].value == 1
    assert 0 < batch.metrics["success"].value < 1
    assert batch.metrics["success"].count == 24
    assert min(item.weight.min() for item in batch.items) < 0


async def test_a_batch_of_which_nothing_is_learned_is_played_anew():
    batches = iter([[], [], None])

    def after(trajectories):
        kept = next(batches, None)
        return list(trajectories) if kept is None else kept

    trainable = reinforce(filter_after_credit=after)
    batch = await source(tasks=sums(), play=forgetful, groups_per_batch=8).next_batch(trainable)
    assert batch.metrics["rollouts/kept"].count == 3 * 24
    assert batch.items


class Waits(TextEnv):
    async def start(self, options):
        await asyncio.sleep(0)
        return "A or B?", "Reply with a letter."

    async def turn(self, action):
        await asyncio.sleep(0)
        return end(success=action == "A", reward=float(action == "A"))


gym.register("async/Waits-v0", Waits)


async def test_asynchronous_environments_are_trained_on():
    tasks = (Task(env_id="async/Waits-v0", seed=s, sampling=Sampling(seed=s)) for s in count())
    batch = await source(
        lambda messages, sampling: "AB"[sampling.seed % 2], tasks=tasks, groups_per_batch=8
    ).next_batch(grpo(filter=None))

    assert len(batch.items) == 24
    assert 0 < batch.metrics["success"].value < 1
    assert batch.metrics["episodes/failed"].value == 0


async def test_every_episode_is_recorded_with_the_credit_of_its_steps():
    calls = []
    made = source(record=lambda *words: calls.append(words), groups_per_batch=8, group_size=4)
    batch = await made.next_batch(grpo())
    ((episodes, credit),) = calls
    assert len(episodes) == 32
    # Groups of equal rewards are left out, and credit is equal over the steps of a rollout.
    earned = {}
    for episode in episodes:
        earned.setdefault(episode.task.group, set()).add(episode.rollouts[0].total_reward)
    weights = [own for group in credit.values() for own in group]
    for episode, own in zip(episodes, weights, strict=True):
        mixed = len(earned[episode.task.group]) > 1
        assert (own is not None) == mixed
        assert own is None or len(own) == len(episode.rollouts[0].steps)
    rows = sorted(float(row.weight[row.action_mask][0]) for row in batch.items)
    assert sorted(weight for own in weights for weight in own or ()) == rows


async def test_credit_that_comes_in_the_update_is_recorded_as_unknown():
    calls = []
    await source(record=lambda *words: calls.append(words)).next_batch(ppo())
    assert [credit for _, credit in calls] == [None]


async def test_batches_that_taught_nothing_are_recorded_too():
    calls = []
    made = source(
        first_free_cell, tasks=islice(games(), 6), record=lambda *words: calls.append(words)
    )
    with pytest.raises(EmptyBatch):
        await made.next_batch(grpo())
    ((episodes, credit),) = calls
    assert (len(episodes), credit) == (18, None)
