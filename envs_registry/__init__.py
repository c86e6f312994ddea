"""The catalogue of Ludic's environments, and their registration with Gymnasium and PettingZoo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import pettingzoo

from envs_registry.catalog import ADAPTERS, CATALOG
from envs_registry.published import ENV, PUBLISHED


def register_envs() -> None:
    """Register the catalogue, the adapters and the benchmarks; leave registered ids as they are."""
    for entry in CATALOG:
        _register(entry.id, {}, entry.gym, entry.aec, entry.parallel)
    for adapter in ADAPTERS:
        _register(adapter.id, adapter.kwargs, adapter.gym, adapter.aec)
    for published in PUBLISHED.values():
        # Our environment of published benchmarks reads the rest from the catalogue by the name.
        is_own = published.gym == ENV
        kwargs = {"benchmark": published.name} if is_own else published.kwargs
        _register(published.id, kwargs, published.gym, "")


def _register(
    env_id: str, kwargs: Mapping[str, Any], gym_view: str, aec: str, parallel: str = ""
) -> None:
    # TextEnv checks the order of calls itself, which is cheaper than a wrapper.
    if gym_view and env_id not in gym.registry:
        gym.register(env_id, gym_view, kwargs=dict(kwargs), order_enforce=False)
    if aec and env_id not in pettingzoo.aec_registry:
        pettingzoo.register("aec", env_id, aec, kwargs=dict(kwargs))
    if parallel and env_id not in pettingzoo.parallel_registry:
        pettingzoo.register("parallel", env_id, parallel)
