"""Text environments for language-model agents. Importing this registers the `ludic/` ids.

Public names are imported at their first use, from the modules in `__init__.pyi`.

>>> import gymnasium as gym
>>> import ludic_gym as lg
>>> env = gym.make("ludic/GuessTheNumber-v0")
>>> observation, info = env.reset(seed=1)
>>> observation
'The number is from 1 to 100. Guesses left: 7.'
>>> env.step("50")[0]
'50 is too low. The number is from 51 to 100. Guesses left: 6.'
>>> result = lg.evaluate(env.spec.id, lg.OraclePolicy, episodes=20, progress=False)
>>> result.success_rate, result.turns
(1.0, 118)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import lazy_loader

import envs_registry

_public_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    """A public name, or the installed version."""
    if name == "__version__":
        # Read when it is wanted: the metadata of packages takes some milliseconds.
        return import_module("importlib.metadata").version("ludic-gym")
    # What programs that were written before `model` call it.
    name = "model" if name == "openai" else name
    if name not in __all__:
        # Only then, since a name that is there needs no table of others.
        import_module("ludic_gym.former_names").check_name(__name__, name)
    return _public_name(name)


envs_registry.register_envs()
