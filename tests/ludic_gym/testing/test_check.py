import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.core.base import TextEnv
from ludic_gym.errors import ContractError
from ludic_gym.testing.check import Verdict, check_text_env, complaint_about, verdicts


class Two(TextEnv):
    """Breaks two rules: a key that is None, and components that are not the reward."""

    def start(self, options):
        return "?", ""

    def turn(self, action):
        return "", 1.0, True, False, {"success": True, "reward/part": 0.5, "hint": None}


@pytest.fixture
def two():
    gym.register("broken/Two-v0", f"{__name__}:Two", order_enforce=False)
    yield "broken/Two-v0"
    del gym.registry["broken/Two-v0"]


def test_verdicts_go_on_after_a_broken_rule(two):
    found = [verdict for verdict in verdicts(two) if verdict.complaint]
    assert [verdict.rule for verdict in found] == [
        "every info key has one type, is never None, never 'episode'",
        "the last info has success, and components that sum to the reward",
    ]
    assert found[1].complaint == "{'reward/part': 0.5} sum to 0.5, but the reward is 1.0"


def test_the_check_stops_at_the_first(two):
    with pytest.raises(ContractError, match=r"is never None, .*info\['hint'\] is None") as caught:
        check_text_env(two)
    assert "sum to" not in str(caught.value)


def test_kept_rules_have_no_complaint():
    found = list(verdicts("ludic/ConnectFour-v0"))
    assert {verdict.complaint for verdict in found} == {""}
    # Fourteen of one environment, two of many and of processes, eight of PettingZoo's.
    assert len({verdict.rule for verdict in found}) == len(found) == 24


def test_a_complaint_is_a_sentence():
    assert complaint_about("a/B-v0", Verdict(rule="it works", complaint="no")) == (
        "a/B-v0 breaks the rule 'it works': no"
    )


def test_an_unknown_id_is_gymnasiums_own_error():
    with pytest.raises(ContractError, match="Did you mean: `ConnectFour`"):
        check_text_env("ludic/ConnectFive-v0")
