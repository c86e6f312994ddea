from importlib.metadata import version

import gymnasium as gym
import numpy
import pytest

from ludic_gym.adapters.reasoning_gym_env import ReasoningGymEnv
from ludic_gym.bench.provenance import provenance

MODULE = """
from ludic_gym.envs.core.question import Question, QuestionEnv
from ludic_gym.graders.extract import Grade

class Riddle(QuestionEnv):
    prompt = "Solve it."

    def ask(self, options):
        return Question("What has keys?", "a piano")

    def grade(self, answer, truth):
        return Grade(answer == truth, answer, "whole")
"""


@pytest.fixture
def riddle(tmp_path, monkeypatch):
    """A file with an environment, and its id."""
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "riddles_for_provenance.py"
    path.write_text(MODULE)
    gym.register("test/Riddle-v0", entry_point="riddles_for_provenance:Riddle")
    yield path
    gym.registry.pop("test/Riddle-v0")


def test_an_edited_environment_is_another_one(riddle):
    before = provenance("test/Riddle-v0", {}).environment
    assert provenance("test/Riddle-v0", {}).environment == before
    assert before.startswith("riddles_for_provenance@")
    riddle.write_text(MODULE.replace("a piano", "a map"))
    assert provenance("test/Riddle-v0", {}).environment != before


def test_libraries_and_rows_are_named():
    sums = provenance("ludic/GSM8K-v0", {})
    assert sums.versions["numpy"] == numpy.__version__
    assert sums.data == str(gym.make("ludic/GSM8K-v0").unwrapped.origin)
    assert provenance("ludic/ConnectFour-v0", {}).data == ""


def test_the_package_behind_an_adapter_belongs_to_the_environment():
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    gym.register("test/Sums-v0", entry_point=f"{ReasoningGymEnv.__module__}:ReasoningGymEnv")
    origin = provenance("test/Sums-v0", {"dataset": "chain_sum"})
    gym.registry.pop("test/Sums-v0")
    assert f", reasoning-gym {version('reasoning-gym')}" in origin.environment
