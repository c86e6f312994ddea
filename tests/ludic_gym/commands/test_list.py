"""`ludic list`, and the levels, splits and starts of all environments."""

import inspect
from importlib import import_module
from math import expm1

import pettingzoo
import pytest

from envs_registry.catalog import CATALOG
from envs_registry.starts import STARTS
from ludic_gym.commands.list import players_of
from ludic_gym.errors import ConfigError

ENOUGH = 10_000


def estimated(seeds, found):
    """Number N of starts, if all are equally likely: N (1 - exp(-seeds / N)) of them are found."""
    low, high = float(found), 1e12
    while high - low > 1:
        middle = (low + high) / 2
        low, high = (middle, high) if -middle * expm1(-seeds / middle) < found else (low, middle)
    return high


def entry(name):
    return next(entry for entry in CATALOG if entry.id == f"ludic/{name}-v0")


def test_starts_are_counted_at_every_level_of_every_generated_environment():
    counted = [entry for entry in CATALOG if "dataset" not in entry.tags]
    assert list(STARTS) == [entry.id for entry in counted]
    for one in counted:
        assert list(STARTS[one.id]) == [str(value) for value in one.levels[1]] or [""]
        assert all(seeds >= found >= seen >= 1 for seeds, seen, found in STARTS[one.id].values())


@pytest.mark.parametrize("one", CATALOG, ids=lambda one: one.id)
def test_an_environment_with_few_starts_says_why(one):
    levels = STARTS.get(one.id, {}).values()
    few = [found for seeds, _, found in levels if estimated(seeds, found) < ENOUGH]
    assert bool(few) == bool(one.few_starts)


@pytest.mark.parametrize("one", CATALOG, ids=lambda one: one.id)
def test_an_environment_without_splits_says_why(one):
    module, _, name = one.gym.partition(":")
    parameters = inspect.signature(getattr(import_module(module), name)).parameters
    assert ("split" in parameters) != bool(one.no_splits)


def test_the_estimate_is_that_of_birthdays():
    # 1,000 seeds over 10,000 starts have about 1000 * 1000 / 2 / 10000 = 50 repetitions.
    assert estimated(1000, 951.6) == pytest.approx(10_000, rel=0.01)
    assert estimated(1000, 1000) > 1e8
    assert estimated(20_000, 7) <= 8


@pytest.mark.parametrize("entry", [e for e in CATALOG if e.aec], ids=lambda e: e.id)
def test_the_numbers_of_players_are_those_that_the_game_takes(entry):
    low, _, high = entry.seats.partition(" to ")
    assert players_of(entry) == f"1 or {entry.seats}"
    for players in (int(low), int(high)) if high else ():
        made = pettingzoo.make("aec", entry.id, players=players)
        assert len(made.possible_agents) == players
    for players in (int(low) - 1, int(high) + 1) if high else ():
        with pytest.raises(ConfigError, match="players"):
            pettingzoo.make("aec", entry.id, players=players)
    if not high:
        assert len(pettingzoo.make("aec", entry.id).possible_agents) == int(low)
