"""Rules for ids in PettingZoo's registries, PettingZoo's own tests included.

An AEC environment lets one agent act at a time, a parallel environment all of them at once
(Terry et al. 2021, arXiv:2009.14471). An id may be in either registry, in both, or in none.
"""

import contextlib
import io
import random
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import pettingzoo
from pettingzoo import AECEnv, ParallelEnv

from ludic_gym.offered import legal_actions
from ludic_gym.packages import optional
from ludic_gym.testing.rules import (
    HOSTILE_TEXTS,
    MOST_TURNS,
    SEEDS,
    draw_action,
    insist_copies_continue,
    insist_same,
    interleave,
    must_take,
)

TurnEnv = AECEnv[str, Any, Any]
JointEnv = ParallelEnv[str, Any, Any]

# PettingZoo's warnings about all observations and spaces that are not made of arrays.
_ADVICE = (
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be",
    "Action space for each agent probably should be",
)


def pettingzoo_rules(env_id: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """The rules for the registries with this id, and functions that raise if they are broken.

    env_id: as in `check_text_env`; none of the rules applies to an id of Gymnasium alone.
    Raises MissingPackage without pytest, which PettingZoo's tests import.
    """
    if env_id in pettingzoo.aec_registry:
        suite = optional("pettingzoo.test", "pytest")

        def match() -> TurnEnv:
            return cast(TurnEnv, pettingzoo.make("aec", env_id))

        yield "it passes PettingZoo's api_test", lambda: _quietly(suite.api_test, match())
        yield "it passes PettingZoo's seed_test", lambda: _quietly(suite.seed_test, match)
        yield "any text is an action of any agent in turn", lambda: takes_any_text(match())
        yield "the seed alone decides the match", lambda: depends_on_seed_alone(match)
        yield "a copy of a match continues like the original", lambda: continues_as_copy(match)
    # Seeds and copies have no rule of ours here: PettingZoo's seed test covers the first, and a
    # parallel env of this package is a view of an AEC env, which has both.
    if env_id in pettingzoo.parallel_registry:
        tests = optional("pettingzoo.test", "pytest")

        def joint() -> JointEnv:
            return cast(JointEnv, pettingzoo.make("parallel", env_id))

        api_test, seed_test = tests.parallel_api_test, tests.parallel_seed_test
        yield "it passes PettingZoo's parallel_api_test", lambda: _quietly(api_test, joint())
        yield "it passes PettingZoo's parallel_seed_test", lambda: _quietly(seed_test, joint)
        yield "any text is a joint action", lambda: takes_any_joint_text(joint())


def _quietly(test: Callable[[Any], None], subject: object) -> None:
    """Run one of PettingZoo's tests without its prints and its warnings about texts."""
    for advice in _ADVICE:
        warnings.filterwarnings("ignore", message=advice)
    with contextlib.redirect_stdout(io.StringIO()):
        test(subject)


def takes_any_text(env: TurnEnv) -> None:
    """Every agent may send any str, in its first turn and after legal ones.

    Broken by `x, y = action.split(",")` in `step`, which raises ValueError for "".
    """
    for seed, text in enumerate(HOSTILE_TEXTS):
        for legal_turns in range(3):
            env.reset(seed=seed)
            rng = random.Random(seed)
            with must_take(text):
                for turn, agent in enumerate(env.agent_iter(max_iter=20)):
                    over = env.terminations[agent] or env.truncations[agent]
                    # PettingZoo's protocol: an agent that is out acts once more, with None.
                    action = _action_for(env, rng) if turn < legal_turns else text
                    env.step(None if over else action)


def takes_any_joint_text(env: JointEnv) -> None:
    """All agents may send any str at once, for up to ten rounds.

    Broken by a `step` that reads the action of an agent whose earlier text has ended its part.
    """
    for seed, text in enumerate(HOSTILE_TEXTS):
        env.reset(seed=seed)
        with must_take(text):
            for _ in range(10):
                if env.agents:
                    env.step(dict.fromkeys(env.agents, text))


def depends_on_seed_alone(make: Callable[[], TurnEnv]) -> None:
    """A match depends on its seed and its actions, not on another match that is played in between.

    Broken by a deck of cards that is shuffled at import and shared by all matches.
    """
    for seed in SEEDS:
        alone = list(_turns(make(), seed))
        together = interleave(_turns(make(), seed), _turns(make(), seed + 1))
        insist_same(f"the match of seed {seed}", alone, together)


def continues_as_copy(make: Callable[[], TurnEnv]) -> None:
    """A deep copy and a pickle of a match, made after one turn, play on like the match itself.

    Broken by agents that keep a reference to the original board, which the copy does not own.
    """
    for seed in SEEDS:
        env = make()
        env.reset(seed=seed)
        env.step(_action_for(env, random.Random(seed)))
        insist_copies_continue(env, partial(_rest, seed=seed))


def _turns(env: TurnEnv, seed: int) -> Iterator[object]:
    """The agents in turn of the match of that seed, with what each observes."""
    env.reset(seed=seed)
    return _rest(env, seed)


def _rest(env: TurnEnv, seed: int) -> Iterator[object]:
    """The observations of the agents in turn, up to the end or for `MOST_TURNS`."""
    rng = random.Random(seed)
    for agent in env.agent_iter(max_iter=MOST_TURNS):
        _, _, terminated, truncated, _ = seen = env.last()
        yield agent, seen
        env.step(None if terminated or truncated else _action_for(env, rng))


def _action_for(env: TurnEnv, rng: random.Random) -> str:
    """A legal action for the agent in turn, or sometimes any text; see `draw_action`."""
    return draw_action(rng, legal_actions(env.unwrapped))
