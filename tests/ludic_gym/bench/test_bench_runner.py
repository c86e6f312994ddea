import asyncio

import pytest

from ludic_gym.bench import bench_tasks, run_bench
from ludic_gym.policies import OraclePolicy, RandomPolicy, ScriptedPolicy

TICTACTOE = "ludic/TicTacToe-v0"


async def test_the_oracle_solves_every_sum():
    result = await run_bench(bench_tasks("ludic/Arithmetic-v0", episodes=50), OraclePolicy)
    assert (result.episodes, result.successes, result.mean_reward) == (50, 50, 1.0)
    assert result.success_interval.high == 1.0


async def test_perfect_play_never_loses():
    tasks = bench_tasks(TICTACTOE, kwargs={"opponent": "mixed", "seat": "random"}, episodes=100)
    result = await run_bench(tasks, OraclePolicy)
    assert set(result.outcomes) == {"win", "draw"}
    assert sum(result.outcomes.values()) == 100


async def test_the_result_is_the_same_at_any_concurrency():
    tasks = bench_tasks(TICTACTOE, episodes=40)
    one, many = [await run_bench(tasks, RandomPolicy, concurrency=c) for c in (1, 64)]
    assert one == many


async def test_failed_episodes_are_told_and_counted_apart():
    # The script ends after one move, so every game fails in its second turn.
    seen = []
    result = await run_bench(
        bench_tasks(TICTACTOE, episodes=3),
        lambda env: ScriptedPolicy(["5"]),
        on_episode=seen.append,
    )
    assert (result.episodes, len(result.errors)) == (0, 3)
    assert [index for index, _ in result.errors] == [0, 1, 2]
    assert all("scripted actions are played" in reason for _, reason in result.errors)
    assert sorted(episode.index for episode in seen) == [0, 1, 2]


async def test_an_illegal_move_is_a_loss_and_no_error():
    tasks = bench_tasks(TICTACTOE, episodes=4)
    result = await run_bench(tasks, lambda env: ScriptedPolicy(["hello"]))
    assert result.outcomes == {"illegal": 4}
    assert (result.mean_reward, result.errors) == (-1.0, ())


async def test_an_error_of_the_observer_ends_the_run_and_leaves_no_task():
    class ObserverError(Exception):
        """Raised by the observer below."""

    def observe(episode):
        raise ObserverError

    tasks = bench_tasks(TICTACTOE, episodes=40)
    with pytest.raises(ObserverError):
        await run_bench(tasks, RandomPolicy, on_episode=observe)
    assert asyncio.all_tasks() == {asyncio.current_task()}
