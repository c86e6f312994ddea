"""The catalogue of Ludic's environments, and their registration with Gymnasium and PettingZoo."""

from __future__ import annotations

from collections.abc import Mapping

import gymnasium as gym
import pettingzoo

from envs_registry.adapters import ADAPTERS
from envs_registry.catalog import CATALOG


def register_envs() -> None:
    """Register all ids of the catalogue and the adapters; leave registered ids as they are."""
    for entry in CATALOG:
        _register(entry.id, {}, entry.gym, entry.aec, entry.parallel)
    for adapter in ADAPTERS:
        _register(adapter.id, adapter.kwargs, adapter.gym, adapter.aec)


def _register(
    env_id: str, kwargs: Mapping[str, str], gym_view: str, aec: str, parallel: str = ""
) -> None:
    # TextEnv checks the order of calls itself, which is cheaper than a wrapper.
    if gym_view and env_id not in gym.registry:
        gym.register(env_id, gym_view, kwargs=dict(kwargs), order_enforce=False)
    if aec and env_id not in pettingzoo.aec_registry:
        pettingzoo.register("aec", env_id, aec, kwargs=dict(kwargs))
    if parallel and env_id not in pettingzoo.parallel_registry:
        pettingzoo.register("parallel", env_id, parallel)
