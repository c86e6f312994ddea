"""The sandbox that confines, if it works here, and the plain process."""

import pytest

from ludic_gym.sandbox.choice import open_sandbox, why_not
from ludic_gym.sandbox.loop import run_blocking


def require_native():
    if reason := why_not():
        pytest.skip(f"no sandbox works here: {reason}")


@pytest.fixture(scope="session")
def opened():
    """A function from a name to its sandbox, which is opened once: starting processes takes time.

    Every program has a sandbox of its own anyway, and tests that share one see what is left over.
    """
    sandboxes = {}

    def open_once(name):
        if name == "native":
            require_native()
        if name not in sandboxes:
            sandboxes[name] = open_sandbox(name, allow_unsafe=True, warm=1, concurrency=8)
        return sandboxes[name]

    yield open_once
    for sandbox in sandboxes.values():
        run_blocking(sandbox.close())


@pytest.fixture(params=["native", "process"])
def any_sandbox(request, opened):
    """Each sandbox that takes any program, also the one without protection."""
    return opened(request.param)


@pytest.fixture
def safe_sandbox(opened):
    """The sandbox that protects from any program."""
    return opened("native")
