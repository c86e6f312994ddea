import importlib
import inspect

import gymnasium as gym
import pytest

import ludic_gym as lg
from envs_registry.catalog import CATALOG, SUITES
from envs_registry.published import ENV, PUBLISHED
from ludic_gym.envs.questions.published import MARKERS, PARSERS

IDS = [entry.id for entry in PUBLISHED.values()]
entries = pytest.mark.parametrize("entry", PUBLISHED.values(), ids=PUBLISHED)


def test_names_and_ids_are_unique_and_no_suite_has_such_a_name():
    assert len(set(IDS)) == len(IDS)
    assert not set(PUBLISHED) & set(SUITES)


@entries
def test_an_id_is_registered_by_the_catalogue_or_the_benchmark(entry):
    assert entry.id in gym.registry
    assert bool(entry.gym) == (entry.id not in {other.id for other in CATALOG})


@entries
def test_an_environment_takes_the_arguments_of_the_table(entry):
    module, _, name = gym.spec(entry.id).entry_point.partition(":")
    cls = getattr(importlib.import_module(module), name)
    accepted = inspect.signature(cls).parameters
    assert "data" in accepted
    # "options" are those of CodeEnv.
    assert entry.kwargs.keys() <= accepted.keys() | {"cpu_s"}


@entries
def test_the_split_of_the_hub_is_the_publishers(entry):
    if entry.hub:
        found = lg.hub_data(entry.hub)
        assert (found.split, found.config or "") == (entry.split, entry.config)


def test_benchmarks_with_rows_of_their_own_have_a_parser_and_a_marker():
    own = {entry.name for entry in PUBLISHED.values() if entry.gym == ENV}
    assert own == PARSERS.keys() == MARKERS.keys()
    assert all(entry.prompt or entry.name.startswith("if") for e in own for entry in [PUBLISHED[e]])
