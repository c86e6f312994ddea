"""Many submissions at once, while sandboxes break: nothing lost, nobody blamed, nothing left."""

import asyncio
import gc
import os
import tempfile

import gymnasium as gym
import pytest
from crashing import CrashingSandbox

from ludic_gym.envs.code.programs import PythonFunctionsEnv
from ludic_gym.errors import NoSandbox
from ludic_gym.policies.reference import ScriptedPolicy
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.sandbox.choice import open_sandbox
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.types import Task

SANDBOXES = []


def make_env(**kwargs):
    return PythonFunctionsEnv(sandbox=SANDBOXES[-1], **kwargs)


gym.register("test/Crashing-v0", make_env)


def open_files():
    return len(os.listdir("/proc/self/fd"))


def child_processes():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return set(file.read().split())


async def play(count):
    """Right and wrong programs in turn; the programs differ, so that none is known already."""
    env = make_env()
    tasks, right = [], {}
    for i in range(count):
        env.reset(seed=0, options={"row": i % env.num_rows})
        solution = env.question.truth
        right[i] = i % 2 == 0
        code = solution if right[i] else f"{solution}\n{env.question.tests.name} = lambda *a: 1j"
        action = f"{code}\n# {i}"
        task = Task(env_id="test/Crashing-v0", seed=0, options={"row": i % env.num_rows})
        tasks.append((task, lambda env, action=action: ScriptedPolicy([action])))
    stream = run_episodes(tasks, lambda env: ScriptedPolicy([]), concurrency=16)
    return right, [episode async for episode in stream]


@pytest.mark.long
@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_episode_is_lost_and_none_blamed_when_sandboxes_break(count, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    try:
        sandbox = open_sandbox("auto", warm=2)
    except NoSandbox as error:
        pytest.skip(str(error))
    SANDBOXES.append(CrashingSandbox(sandbox, share=0.05))
    # The first episode starts threads and loops that stay.
    asyncio.run(play(1))
    files, processes = open_files(), child_processes()
    right, episodes = asyncio.run(play(count))
    assert len(episodes) == count
    assert [episode.error for episode in episodes if episode.error] == []
    rewards = {episode.index: episode.rollouts[0].total_reward for episode in episodes}
    assert {i: reward == 1.0 for i, reward in rewards.items()} == right
    assert set(rewards.values()) == {0.0, 1.0}
    assert SANDBOXES[-1].crashes > count // 40
    run_blocking(sandbox.close())
    gc.collect()
    assert open_files() <= files
    assert child_processes() <= processes
    assert os.listdir(tmp_path) == []
