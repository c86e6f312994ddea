"""The catalogue of Ludic's environments, and their registration with Gymnasium and PettingZoo."""

from __future__ import annotations

import gymnasium as gym
import pettingzoo

from envs_registry.adapters import ADAPTERS, AdapterEntry
from envs_registry.catalog import CATALOG, SUITES, EnvEntry, bench_kwargs

__all__ = [
    "ADAPTERS",
    "CATALOG",
    "SUITES",
    "AdapterEntry",
    "EnvEntry",
    "bench_kwargs",
    "register_envs",
]


def register_envs() -> None:
    """Register all ids of the catalogue and the adapters; leave registered ids as they are."""
    for entry in CATALOG:
        # TextEnv checks the order of calls itself, which is cheaper than a wrapper.
        if entry.id not in gym.registry:
            kwargs = dict(entry.kwargs)
            gym.register(entry.id, entry.gym, kwargs=kwargs, order_enforce=False)
        if entry.aec and entry.id not in pettingzoo.aec_registry:
            pettingzoo.register("aec", entry.id, entry.aec)
        if entry.parallel and entry.id not in pettingzoo.parallel_registry:
            pettingzoo.register("parallel", entry.id, entry.parallel)
    for adapter in ADAPTERS:
        if adapter.gym and adapter.id not in gym.registry:
            kwargs = dict(adapter.kwargs)
            gym.register(adapter.id, adapter.gym, kwargs=kwargs, order_enforce=False)
        if adapter.aec and adapter.id not in pettingzoo.aec_registry:
            pettingzoo.register("aec", adapter.id, adapter.aec, kwargs=dict(adapter.kwargs))
