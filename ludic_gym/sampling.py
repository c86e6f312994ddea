"""check_sampling: sampling parameters that can work."""

from __future__ import annotations

import math

from ludic_gym.errors import ConfigError
from ludic_gym.types import Sampling


def check_sampling(sampling: Sampling) -> None:
    """Raises ConfigError for values that no completion can be sampled with."""
    if not 0 <= sampling.temperature < math.inf:
        raise ConfigError(f"temperature={sampling.temperature} must be 0 (greedy) or more")
    if not 0 < sampling.top_p <= 1:
        raise ConfigError(f"top_p={sampling.top_p} must be above 0 and at most 1")
    if sampling.max_tokens < 1:
        raise ConfigError(f"max_tokens={sampling.max_tokens} must be at least 1")
    if "" in sampling.stop:
        raise ConfigError(f"stop={sampling.stop!r} has an empty string, which every text contains")
