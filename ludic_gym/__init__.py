"""Text environments for language-model agents. Importing this makes the `ludic/` ids known.

Names are looked up when they are first used; `__init__.pyi` says in which module each is.
"""

from __future__ import annotations

import sys
from importlib import import_module

import lazy_loader

import envs_registry

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

envs_registry.register_envs()

if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    import_module("ludic_gym.notebook").load_ipython_extension(_shell)
