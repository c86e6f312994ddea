import subprocess
import sys
from importlib.metadata import version

import pytest

import ludic_gym


def run(program):
    """Output of the code in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_public_name_is_found_in_its_module():
    assert ludic_gym.ChatPolicy.__module__ == "ludic_gym.policies.chat"
    assert ludic_gym.Task.__module__ == "ludic_gym.types"
    assert all(hasattr(ludic_gym, name) for name in ludic_gym.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="ChatPolice"):
        _ = ludic_gym.ChatPolice


def test_a_name_loads_its_module_when_it_is_first_used():
    # `test_lightness` says that none is loaded before.
    program = "import sys, ludic_gym; ludic_gym.ChatPolicy; print(*sys.modules)"
    assert "ludic_gym.policies.chat" in run(program).split()


@pytest.mark.long
def test_an_import_takes_little_more_than_that_of_gymnasium_and_pettingzoo():
    program = (
        "from time import process_time as s; a = s(); import gymnasium, pettingzoo; b = s(); "
        "import ludic_gym; print((s() - b) / (b - a))"
    )
    # It is 0.1; the best of some, because a neighbour may have the caches.
    assert min(float(run(program)) for _ in range(3)) < 0.25


def test_the_version_is_that_of_the_installed_package():
    assert ludic_gym.__version__ == version("ludic-gym")
