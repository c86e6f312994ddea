"""Fixtures of every test."""

import os
import signal
import types
from functools import cache
from pathlib import Path

import hypothesis
import pytest

# A shell lets programs in the background ignore Ctrl-C, and so would those that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A shared core is slow at times: a deadline would fail tests for the neighbour's load.
hypothesis.settings.register_profile("ludic", deadline=None, max_examples=50)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True)
hypothesis.settings.register_profile("few", deadline=None, max_examples=5, derandomize=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=500)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "ludic")


# Tests of a module that imports one of these start programs, servers, browsers or sandboxes.
PROGRAMS = frozenset(
    {
        "subprocess",
        "multiprocessing",
        "forked",
        "redis_server",
        "chat_server",
        "two_ranks",
        "playwright",
    }
)


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the checkout."""
    return Path(__file__).parents[1]


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item):
    """Mark tests that start programs, before tests are chosen by their marks."""
    if starts_programs(item.module):
        item.add_marker(pytest.mark.program)


@cache
def starts_programs(module):
    """True if a module of tests imports what starts programs."""
    origins = (getattr(each, "__module__", None) or each.__name__ for each in imported(module))
    return any(origin.partition(".")[0] in PROGRAMS for origin in origins)


def imported(module):
    """The modules, functions and classes that are global names of a module."""
    kinds = types.ModuleType, types.FunctionType, type
    return [each for each in vars(module).values() if isinstance(each, kinds)]


# After those that are not run are out of the list.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if any(item.get_closest_marker(name) for name in ("slow", "gpu", "vllm")):
            item.add_marker(pytest.mark.timeout(0))
    items[:] = long_ones_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def long_ones_first(items, workers):
    """The tests in the order in which xdist's workers, each of which begins with an equal share of
    the list, all have long ones first: a run would wait for a long one at its end."""
    long = [item for item in items if item.get_closest_marker("long")]
    others = [item for item in items if not item.get_closest_marker("long")]
    ordered = []
    for worker in range(workers):
        # As xdist's scheduler "worksteal" divides.
        size = (len(items) - len(ordered)) // (workers - worker)
        share = long[worker::workers]
        count = max(0, size - len(share))
        ordered += [*share, *others[:count]]
        others = others[count:]
    return ordered
