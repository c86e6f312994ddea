"""Every back end that works here; the others are skipped, and say why."""

import pytest
import pytest_asyncio

from ludic_gym.sandbox.choice import BACKENDS, open_sandbox, why_not


@pytest_asyncio.fixture(params=[*BACKENDS, "process"])
async def any_sandbox(request):
    """Each sandbox that takes any program, also the one without protection."""
    if request.param in BACKENDS and (reason := why_not(request.param)):
        pytest.skip(f"{request.param} does not work here: {reason}")
    sandbox = open_sandbox(request.param, allow_unsafe=True, warm=1)
    yield sandbox
    await sandbox.close()


@pytest_asyncio.fixture(params=list(BACKENDS))
async def safe_sandbox(request):
    """Each sandbox that protects from any program."""
    if reason := why_not(request.param):
        pytest.skip(f"{request.param} does not work here: {reason}")
    sandbox = open_sandbox(request.param, warm=1)
    yield sandbox
    await sandbox.close()
