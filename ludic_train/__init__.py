"""A trainer that learns from episodes: rollouts -> rows -> loss -> update -> publish.

Names are looked up when they are first used; `__init__.pyi` says in which module each is.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

import ludic_gym

_public_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    """A public name, or the installed version, which is that of `ludic_gym`."""
    return ludic_gym.__version__ if name == "__version__" else _public_name(name)
