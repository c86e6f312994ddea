"""Fixtures of every test."""

import gc
import os
import signal
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


def pytest_collection_finish() -> None:
    """Keep what is imported by now out of every later collection of garbage."""
    gc.freeze()


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the checkout."""
    return Path(__file__).parents[1]


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
