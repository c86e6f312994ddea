"""A grader with the sandbox of this machine, and one whose sandbox breaks."""

import pytest
from crashing import CrashingSandbox

from ludic_gym.errors import NoSandbox
from ludic_gym.graders.programs.grader import Grader, grader_for
from ludic_gym.sandbox.choice import shared_sandbox


@pytest.fixture(scope="session")
def sandbox():
    try:
        return shared_sandbox("auto")
    except NoSandbox as error:
        pytest.skip(str(error))


@pytest.fixture
def grader(sandbox) -> Grader:
    return grader_for(sandbox)


@pytest.fixture
def crashing(sandbox):
    return lambda share: CrashingSandbox(sandbox, share)
