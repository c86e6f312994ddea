"""A trainer that learns from episodes: rollouts -> rows -> loss -> update -> publish.

Names are looked up when they are first used; `__init__.pyi` says in which module each is.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
