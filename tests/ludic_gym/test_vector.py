"""Gymnasium's two vector environments give equal results for every environment."""

import gymnasium as gym
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import ludic_gym  # noqa: F401 (registers the ids)
from envs_registry.catalog import CATALOG

PROGRAMS = "ludic/RepoRepair-v0"  # The one of its kind that CI plays.
ACTIONS = ("5", "A1", "é\n😀 \ud800")


def played(vector):
    """All that a vector environment shows of some turns, with a reset in mid-episode."""
    seen = [vector.reset(seed=3)]
    for turn in range(20):
        if turn == 11:
            seen.append(vector.reset())
        observations, *numbers, infos = vector.step((str(turn % 9 + 1), *ACTIONS[1:]))
        seen.append((observations, [array.tolist() for array in numbers], infos))
    vector.close()
    return [ascii(each) for each in seen]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(
    "env_id",
    [
        pytest.param(
            entry.id,
            marks=[pytest.mark.slow] if "sandbox" in entry.tags and entry.id != PROGRAMS else [],
        )
        for entry in CATALOG
    ],
)
def test_sync_and_async_vector_envs_give_equal_results(env_id):
    sync, asynchronous = (
        played(make([lambda: gym.make(env_id)] * len(ACTIONS)))
        for make in (SyncVectorEnv, AsyncVectorEnv)
    )
    assert asynchronous == sync
