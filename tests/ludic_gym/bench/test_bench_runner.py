import asyncio

import pytest

from ludic_gym.bench.result import Tally
from ludic_gym.bench.runner import bench_tasks, run_bench
from ludic_gym.policies.reference import OraclePolicy, RandomPolicy, ScriptedPolicy

TICTACTOE = "ludic/TicTacToe-v0"


async def test_the_result_is_the_same_at_any_concurrency():
    tasks = bench_tasks(TICTACTOE, episodes=40)
    one, many = [await run_bench(tasks, RandomPolicy, concurrency=c) for c in (1, 64)]
    assert one == many


async def test_failed_episodes_are_told_and_counted_apart():
    # The script ends after one move, so every game fails in its second turn.
    seen = []
    result = await run_bench(
        bench_tasks(TICTACTOE, episodes=3),
        lambda env: ScriptedPolicy(["B2"]),
        on_episode=seen.append,
    )
    assert (result.episodes, len(result.errors)) == (0, 3)
    assert [index for index, _ in result.errors] == [0, 1, 2]
    assert all("scripted actions are played" in reason for _, reason in result.errors)
    assert sorted(episode.index for episode in seen) == [0, 1, 2]


async def test_an_error_of_the_observer_ends_the_run_and_leaves_no_task():
    class ObserverError(Exception):
        """Raised by the observer below."""

    def observe(episode):
        raise ObserverError

    tasks = bench_tasks(TICTACTOE, episodes=40)
    with pytest.raises(ObserverError):
        await run_bench(tasks, RandomPolicy, on_episode=observe)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_skipped_tasks_are_not_played_and_the_others_keep_their_index():
    tasks = bench_tasks("ludic/Arithmetic-v0", episodes=6)
    seen = []
    await run_bench(tasks, OraclePolicy, skip={0, 2, 3}, on_episode=seen.append)
    assert sorted((e.index, e.task) for e in seen) == [(i, tasks[i]) for i in (1, 4, 5)]


async def test_tasks_that_failed_before_are_played_first():
    tasks = bench_tasks("ludic/Arithmetic-v0", episodes=6)
    seen = []
    run = {"first": [5, 2], "skip": {0}, "on_episode": seen.append, "concurrency": 1}
    await run_bench(tasks, OraclePolicy, **run)
    assert [(e.index, e.task) for e in seen] == [(i, tasks[i]) for i in (2, 5, 1, 3, 4)]


async def test_a_tally_goes_on_from_what_it_holds():
    tasks = bench_tasks("ludic/Arithmetic-v0", episodes=6)
    tally = Tally()
    await run_bench(tasks, OraclePolicy, skip={0, 1, 2}, tally=tally)
    result = await run_bench(tasks, OraclePolicy, skip={3, 4, 5}, tally=tally)
    assert result == await run_bench(tasks, OraclePolicy)


async def test_samples_of_a_task_share_the_env_and_differ_in_sampling():
    tasks = bench_tasks("ludic/Arithmetic-v0", episodes=3, samples=4, seed=7)
    assert [task.seed for task in tasks] == [7] * 4 + [8] * 4 + [9] * 4
    assert len({task.sampling.seed for task in tasks}) == 12
    result = await run_bench(tasks, OraclePolicy)
    assert (result.tasks, result.episodes) == (3, 12)
    assert result.pass_at_k == result.pass_hat_k == (1.0,) * 4
