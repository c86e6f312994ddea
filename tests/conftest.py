"""Fixtures of every test."""

import gc
import os
from pathlib import Path

import hypothesis
import pytest

# A shared core is slow at times: a deadline would fail tests for the neighbour's load.
hypothesis.settings.register_profile("ludic", deadline=None, max_examples=50)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=500)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "ludic")


def pytest_collection_finish() -> None:
    """Keep what is imported by now out of every later collection of garbage."""
    gc.freeze()


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the checkout."""
    return Path(__file__).parents[1]


def pytest_collection_modifyitems(items):
    for item in items:
        if any(item.get_closest_marker(name) for name in ("slow", "gpu", "vllm")):
            item.add_marker(pytest.mark.timeout(0))
