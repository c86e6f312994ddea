import threading

import pettingzoo
import pytest

from ludic_gym.envs.core.two_player import GameParallelEnv
from ludic_gym.envs.games.tic_tac_toe import TicTacToeAECEnv
from ludic_gym.errors import ContractError
from ludic_gym.testing.zoo import pettingzoo_rules

PLAYED = []


class Raises(TicTacToeAECEnv):
    """Takes no more than a few words."""

    def step(self, action):
        if action is not None and len(action) > 1000:
            raise MemoryError("too long")
        super().step(action)


class RaisesLater(TicTacToeAECEnv):
    """Takes the first action, whatever it is."""

    def step(self, action):
        if action is not None and self._state != self.game.initial(self._rng):
            action.encode("ascii")
        super().step(action)


class SharedState(TicTacToeAECEnv):
    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        PLAYED.clear()

    def observe(self, agent):
        PLAYED.append(agent)
        return type(super().observe(agent))(super().observe(agent) + " " * len(PLAYED))


class CannotBeCopied(TicTacToeAECEnv):
    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.lock = threading.Lock()


class ForgetsWhenCopied(TicTacToeAECEnv):
    def __getstate__(self):
        return vars(self) | {"_state": self.game.initial(self._rng)}


class JointRaises(GameParallelEnv):
    def __init__(self, render_mode=None):
        super().__init__(TicTacToeAECEnv(render_mode))

    def step(self, actions):
        "".join(actions.values()).encode("ascii")
        return super().step(actions)


def broken(cls, registry, rule):
    """Complaint of the rule with these words about the class, "" for none."""
    env_id = f"broken/{cls.__name__}-v0"
    known = {"aec": pettingzoo.aec_registry, "parallel": pettingzoo.parallel_registry}[registry]
    pettingzoo.register(registry, env_id, f"{__name__}:{cls.__name__}")
    try:
        (check,) = (check for words, check in pettingzoo_rules(env_id) if words == rule)
        check()
    except (ContractError, TypeError) as error:
        return str(error)
    finally:
        del known[env_id]
    return ""


@pytest.mark.parametrize(
    ("cls", "registry", "rule", "found"),
    [
        (Raises, "aec", "any text is an action of any agent in turn", "raises MemoryError"),
        (RaisesLater, "aec", "any text is an action of any agent in turn", "UnicodeEncodeError"),
        (SharedState, "aec", "the seed alone decides the match", "the match of seed 0"),
        (CannotBeCopied, "aec", "a copy of a match continues like the original", "cannot pickle"),
        (ForgetsWhenCopied, "aec", "a copy of a match continues like the original", "a deep copy"),
        (JointRaises, "parallel", "any text is a joint action", "raises UnicodeEncodeError"),
    ],
)
def test_a_broken_rule_is_found(cls, registry, rule, found):
    assert found in broken(cls, registry, rule)
    sound = JointSound if registry == "parallel" else TicTacToeAECEnv
    assert broken(sound, registry, rule) == ""


class JointSound(GameParallelEnv):
    def __init__(self, render_mode=None):
        super().__init__(TicTacToeAECEnv(render_mode))
