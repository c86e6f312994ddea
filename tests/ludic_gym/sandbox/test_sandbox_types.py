import pytest

from ludic_gym.errors import ConfigError
from ludic_gym.sandbox.types import Limits


@pytest.mark.parametrize("name", ["wall_s", "cpu_s", "memory_bytes", "processes", "output_bytes"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_that_is_not_positive_is_refused(name, value):
    with pytest.raises(ConfigError, match=rf"Limits\({name}={value}\) must be more than 0"):
        Limits(**{name: value})


def test_the_limits_are_these_six():
    assert Limits.__slots__ == (
        "wall_s",
        "cpu_s",
        "memory_bytes",
        "processes",
        "disk_bytes",
        "output_bytes",
    )
