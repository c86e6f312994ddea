"""Text environments for language-model agents. Importing this registers the `ludic/` ids.

Public names are imported at their first use, from the modules in `__init__.pyi`.
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
