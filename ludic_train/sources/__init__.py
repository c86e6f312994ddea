"""Where batches come from: rollouts played now or elsewhere, or data that exists."""

from ludic_train.sources.base import BatchSource, DurableSource
from ludic_train.sources.http_teacher import VLLMTeacher
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.sources.pipeline import PipelineBatchSource
from ludic_train.sources.recorded import recorded_items
from ludic_train.sources.rollouts import RolloutBatchSource
from ludic_train.sources.taught import TaughtBatchSource, Teacher

__all__ = [
    "BatchSource",
    "DurableSource",
    "OfflineBatchSource",
    "PipelineBatchSource",
    "RolloutBatchSource",
    "TaughtBatchSource",
    "Teacher",
    "VLLMTeacher",
    "recorded_items",
]
