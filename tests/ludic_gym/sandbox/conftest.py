"""Every back end that works here; the others are skipped, and say why."""

import pytest

from ludic_gym.sandbox.choice import BACKENDS, open_sandbox, why_not
from ludic_gym.sandbox.loop import run_blocking

# A container takes a second to start.
CONTAINERS = ("docker", "podman")


def pytest_collection_modifyitems(items):
    for item in items:
        marked = item.get_closest_marker("slow_in_containers") is not None
        if marked and {*CONTAINERS} & {*map(str, item.callspec.params.values())}:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def opened():
    """A function from a name to its sandbox, which is opened once: starting processes takes time.

    Every program has a sandbox of its own anyway, and tests that share one see what is left over.
    """
    sandboxes = {}

    def open_once(name):
        if name in BACKENDS and (reason := why_not(name)):
            pytest.skip(f"{name} does not work here: {reason}")
        if name not in sandboxes:
            sandboxes[name] = open_sandbox(name, allow_unsafe=True, warm=1, concurrency=8)
        return sandboxes[name]

    yield open_once
    for sandbox in sandboxes.values():
        run_blocking(sandbox.close())


@pytest.fixture(params=[*BACKENDS, "process"])
def any_sandbox(request, opened):
    """Each sandbox that takes any program, also the one without protection."""
    return opened(request.param)


@pytest.fixture(params=list(BACKENDS))
def safe_sandbox(request, opened):
    """Each sandbox that protects from any program."""
    return opened(request.param)
