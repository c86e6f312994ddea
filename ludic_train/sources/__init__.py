"""Where batches come from: rollouts played now, or data that exists."""

from ludic_train.sources.base import BatchSource
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.sources.rollouts import RolloutBatchSource
from ludic_train.sources.taught import TaughtBatchSource, Teacher

__all__ = [
    "BatchSource",
    "OfflineBatchSource",
    "RolloutBatchSource",
    "TaughtBatchSource",
    "Teacher",
]
