"""Recorded comparison of train and test splits: complete, without an equal task, in the guide."""

import json

import gymnasium as gym
import pytest
import splits

import ludic_gym  # noqa: F401 (registers the ids)
from envs_registry.catalog import CATALOG
from ludic_gym.commands.list import splits_of

FOUND = json.loads(splits.RESULTS.read_text(encoding="utf-8"))
WITH_SPLITS = [entry.id for entry in CATALOG if splits_of(entry)]


@pytest.mark.parametrize("env_id", WITH_SPLITS)
def test_the_splits_of_generated_tasks_have_been_compared_and_share_none(env_id):
    if gym.make(env_id).unwrapped.num_rows is not None:
        assert env_id not in FOUND
        return
    one = FOUND[env_id]
    assert one["equal"] == 0
    assert min(one["train"], one["test"]) > 1
    assert one["train"] <= one["train_seeds"]
    assert one["test"] <= one["test_seeds"]


def test_the_guide_has_the_table_of_the_figures():
    guide = splits.GUIDE.read_text(encoding="utf-8")
    assert splits.with_table(guide, FOUND) == guide
    assert "| `ludic/Negotiation-v0` | 4,066 of 80,000 | 1,094 of 20,000 | 0 |" in guide


def test_the_program_compares_as_many_tasks_as_seeds_without_a_split_have():
    found = splits.compared("ludic/Negotiation-v0", 100)
    assert (found["train_seeds"], found["test_seeds"], found["equal"]) == (80, 20, 0)
