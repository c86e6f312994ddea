import sys

import pytest

from ludic_gym.adapters.extras import needed
from ludic_gym.adapters.reasoning_gym_env import ReasoningGymEnv, puzzles
from ludic_gym.adapters.textarena_env import TextArenaEnv
from ludic_gym.errors import ConfigError


def test_a_module_that_is_there_is_given():
    assert needed("json", install="ludic-gym[adapters]").loads("1") == 1


def test_a_package_that_is_missing_is_named_with_its_extra():
    with pytest.raises(
        ConfigError, match=r"needs no_such_package: pip install 'ludic-gym\[data\]'"
    ):
        needed("no_such_package.part", install="ludic-gym[data]")


@pytest.mark.parametrize(
    ("module", "make"),
    [
        ("reasoning_gym", lambda: ReasoningGymEnv("chain_sum")),
        ("textarena.envs.registration", lambda: TextArenaEnv("Mastermind-v0")),
    ],
)
def test_an_environment_says_when_it_is_made_what_it_needs(module, make, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    puzzles.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install 'ludic-gym\[adapters\]'"):
        make()
