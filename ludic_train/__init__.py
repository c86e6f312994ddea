"""A trainer that learns from episodes: rollouts -> rows -> loss -> update -> publish.

Names are looked up when they are first used; `__init__.pyi` says in which module each is.

A model that is made from nothing learns from its own episodes:

>>> import asyncio
>>> import ludic_gym as lg
>>> import ludic_train as lt
>>> tokenizer = lt.make_tokenizer(["2 + 3 = 5"])
>>> model = lt.make_tiny_model(tokenizer)
>>> client = lt.LocalChatClient(model, tokenizer)
>>> short = lg.Sampling(max_tokens=4)
>>> tasks = (lg.Task(env_id="ludic/Arithmetic-v0", seed=n, sampling=short) for n in range(100))
>>> source = lt.RolloutBatchSource(
...     tasks, lambda env: lg.ChatPolicy(client), groups_per_batch=2, group_size=4
... )
>>> trainer = lt.Trainer(model, lt.rloo(), source, lt.InProcessPublisher(client))
>>> metrics = asyncio.run(trainer.train(2))
>>> trainer.version, client.policy_version
(2, 2)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import lazy_loader

import ludic_gym

_public_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    """A public name, or the installed version, which is that of `ludic_gym`."""
    if name == "__version__":
        return ludic_gym.__version__
    if name not in __all__:
        import_module("ludic_gym.former_names").check_name(__name__, name)
    return _public_name(name)
