"""Many environments at once, each at its own pace."""

from ludic_gym.vector.ragged import RaggedVectorEnv, make_ragged
from ludic_gym.vector.runner import Arrival

__all__ = ["Arrival", "RaggedVectorEnv", "make_ragged"]
