"""Families of Terminal's tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from ludic_gym.envs.worlds.shell import debugging, files, git, permissions, services, text
from ludic_gym.envs.worlds.shell.task import Task

Maker = Callable[[str, np.random.Generator], Task]
"""A task in a folder of that name."""

FAMILIES: Mapping[str, tuple[Maker, ...]] = MappingProxyType(
    {
        "files": files.MAKERS,
        "text": text.MAKERS,
        "permissions": permissions.MAKERS,
        "git": git.MAKERS,
        "services": services.MAKERS,
        "debugging": debugging.MAKERS,
    }
)
