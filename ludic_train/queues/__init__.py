"""Queues that carry groups from actors to a trainer: in Redis, in a file, or in memory."""

from ludic_train.queues.base import (
    ActorReport,
    Admission,
    DeadLetter,
    Entry,
    GroupQueue,
    Progress,
    QueueStatus,
    TakenOver,
    Trained,
    TrainerReport,
)
from ludic_train.queues.redis_stream import RedisQueue
from ludic_train.queues.spool import SpoolQueue
from ludic_train.queues.urls import open_queue

__all__ = [
    "ActorReport",
    "Admission",
    "DeadLetter",
    "Entry",
    "GroupQueue",
    "Progress",
    "QueueStatus",
    "RedisQueue",
    "SpoolQueue",
    "TakenOver",
    "Trained",
    "TrainerReport",
    "open_queue",
]
