import importlib

import gymnasium as gym
import pettingzoo

import ludic_gym  # noqa: F401 (registers the ids)
from envs_registry.catalog import ADAPTERS, CATALOG

IDS = [entry.id for entry in ADAPTERS]


def test_ids_are_unique_and_none_is_of_the_catalogue():
    assert len(set(IDS)) == len(IDS)
    assert not set(IDS) & {entry.id for entry in CATALOG}


def test_every_id_is_known_under_its_views():
    for entry in ADAPTERS:
        assert (entry.id in gym.registry) == bool(entry.gym), entry.id
        assert (entry.id in pettingzoo.aec_registry) == bool(entry.aec), entry.id
        assert entry.gym or entry.aec, entry.id


def test_every_entry_point_exists():
    for entry_point in {point for e in ADAPTERS for point in (e.gym, e.aec) if point}:
        module, _, attribute = entry_point.partition(":")
        assert callable(getattr(importlib.import_module(module), attribute))


def test_every_package_is_in_the_extra_that_is_named(project):
    extras = (project / "pyproject.toml").read_text()
    for package, extra in {(entry.package, entry.extra) for entry in ADAPTERS}:
        (line,) = [line for line in extras.splitlines() if line.startswith(f"{extra} = [")]
        assert f'"{package}>=' in line
