"""check_text_env: all rules for one id, and their verdicts.

The rules are in three files: `rules` for one environment, `scale` for several processes and many
episodes, `zoo` for ids that PettingZoo knows too. A test of a package of environments:

    @pytest.mark.parametrize("env_id", ["my/Riddle-v0", "my/Maze-v0"])
    def test_it_is_a_text_env(env_id):
        check_text_env(env_id)
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import gymnasium as gym
import pettingzoo

from ludic_gym.errors import ContractError, SampleWarning
from ludic_gym.making import make_env
from ludic_gym.testing.rules import FORM_RULES, RULES, Make
from ludic_gym.testing.scale import SCALE_RULES
from ludic_gym.testing.zoo import pettingzoo_rules

Check = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result for one rule.

    rule: the rule as a sentence, such as "any text is an action".
    complaint: "" if it is kept, else the values that break it.
    cause: the error that found them, None if the rule is kept.
    of_form: True for a rule about prompts, pictures and infos, which says nothing of the reward.
    """

    rule: str
    complaint: str = ""
    cause: Exception | None = None
    of_form: bool = False


def check_text_env(env_id: str, **kwargs: Any) -> None:  # noqa: ANN401 (as gymnasium.make)
    """Test the environment against the contract of text environments.

    env_id, kwargs: arguments of `gymnasium.make`; an id that is also in PettingZoo's registries
        must pass PettingZoo's own tests too.
    Raises ContractError with the first broken rule and the values that break it. For this `step`

        def step(self, action):
            return "Next?", float(action), True, False, {}

    the message is: my/Sum-v0 breaks the rule 'any text is an action': the action '' raises
    ValueError("could not convert string to float: ''").
    """
    for verdict in verdicts(env_id, **kwargs):
        if verdict.complaint:
            raise ContractError(complaint_about(env_id, verdict)) from verdict.cause


def verdicts(env_id: str, **kwargs: Any) -> Iterator[Verdict]:  # noqa: ANN401 (as gymnasium.make)
    """The verdicts on all rules, one after the other, in the order of `check_text_env`.

    env_id, kwargs: as there. A broken rule does not end the iteration, so that one run lists every
    fault. Each rule runs when its verdict is requested:

        for verdict in verdicts("my/Riddle-v0"):
            print(verdict.rule, verdict.complaint or "ok")
    """
    # Gymnasium's checks are a rule of their own; in `make` they would hide other broken rules.
    make: Make = partial(make_env, env_id, **{"disable_env_checker": True, **kwargs})
    # A game of several players alone has no view for Gymnasium's rules.
    one_player = env_id in gym.registry or env_id not in pettingzoo.aec_registry
    rules = (*RULES, *SCALE_RULES) if one_player else ()
    of_form = {rule for rule, check in rules if check in FORM_RULES}
    checks: Iterator[tuple[str, Check]] = ((rule, partial(check, make)) for rule, check in rules)
    for rule, check in chain(checks, pettingzoo_rules(env_id)):
        verdict = Verdict(rule=rule, of_form=rule in of_form)
        try:
            with warnings.catch_warnings():
                # An env that passes with a warning here fails in every project that runs its tests
                # with -W error.
                warnings.simplefilter("error")
                # Home-made rows, taken by default, are no fault of the env.
                warnings.simplefilter("ignore", SampleWarning)
                check()
        except ContractError as error:
            verdict = replace(verdict, complaint=str(error), cause=error)
        # The environment is foreign code: each of its errors is a verdict on it, and no fault of
        # this test.
        except Exception as error:
            verdict = replace(verdict, complaint=repr(error), cause=error)
        yield verdict


def complaint_about(env_id: str, verdict: Verdict) -> str:
    """A broken rule as a sentence.

    >>> complaint_about("my/Maze-v0", Verdict(rule="any text is an action", complaint="no 'up'"))
    "my/Maze-v0 breaks the rule 'any text is an action': no 'up'"
    """
    return f"{env_id} breaks the rule '{verdict.rule}': {verdict.complaint}"
