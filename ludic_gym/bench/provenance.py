"""Facts that a result depends on besides its arguments: environment, rows and versions."""

from __future__ import annotations

import hashlib
import inspect
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gymnasium as gym

from ludic_gym.rollout.pool import close

HASH_DIGITS = 12
# Their code decides what every environment draws.
LIBRARIES = ("ludic-gym", "gymnasium", "numpy")
# Packages behind the adapters, by a part of the name of the adapter's module.
ADAPTED = {"reasoning_gym": "reasoning-gym", "textarena": "textarena"}
# Of bases that need no hash: Python and Gymnasium have a version.
FOREIGN = {"builtins", "typing", "abc", "collections", "gymnasium", "pettingzoo"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Origin of an environment's episodes.

    environment: the module of its class, a hash of the source of the class and its bases, and the
        version of the package that they are from, if that is not Ludic.
    data: name and hash of the rows; "" without rows.
    versions: of Python, and of the packages that decide what is drawn, by name.
    """

    environment: str
    data: str
    versions: Mapping[str, str]


def provenance(env_id: str, kwargs: Mapping[str, Any]) -> Provenance:
    """The origin of an environment's episodes, from an env that is made for it."""
    # Imported here: `ludic bench --help` makes no env.
    from ludic_gym.envs.core.question import DatasetEnv

    env = gym.make(env_id, **kwargs)
    try:
        kind, inner = type(env.unwrapped), env.unwrapped
        # Of the package that the env's module is from, unless it is Ludic, and of one it adapts.
        package = kind.__module__.partition(".")[0]
        packages = [name for part, name in ADAPTED.items() if part in kind.__module__]
        own = {}
        for name in packages if package == "ludic_gym" else [package, *packages]:
            # A module of the current folder is in no package: the hash of its source stands for it.
            with suppress(PackageNotFoundError):
                own[name] = version(name)
        names = [f", {name} {number}" for name, number in own.items()]
        return Provenance(
            environment=f"{kind.__module__}@{_source_hash(kind)}{''.join(names)}",
            data=str(inner.origin) if isinstance(inner, DatasetEnv) else "",
            versions={
                "python": platform.python_version(),
                **{name: version(name) for name in LIBRARIES},
                **own,
            },
        )
    finally:
        close(env)


def _source_hash(kind: type) -> str:
    """Hash of the files of a class and its bases; "unknown" for a class without a file."""
    digest = hashlib.sha256()
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in FOREIGN]
    try:
        files = {base.__module__: inspect.getfile(base) for base in bases}
    # Classes of a notebook or of compiled code have no file.
    except (TypeError, OSError):
        return "unknown"
    # By module: the order of paths differs between machines.
    for _, file in sorted(files.items()):
        digest.update(Path(file).read_bytes())
    return digest.hexdigest()[:HASH_DIGITS]
