from envs_registry.catalog import SUITES
from ludic_gym.bench.evaluation import named_envs


def test_a_suite_stands_for_its_environments_with_their_real_splits():
    named = named_envs(["core", "ludic/ConnectFour-v0"])
    assert tuple(named) == (*SUITES["core"], "ludic/ConnectFour-v0")
    assert named["ludic/GSM8K-v0"] == {"split": "test"}
    assert named["ludic/Countdown-v0"] == named["ludic/ConnectFour-v0"] == {}


def test_an_environment_that_is_named_twice_is_played_once():
    assert list(named_envs(["ludic/GSM8K-v0", "math", "math"])).count("ludic/GSM8K-v0") == 1
