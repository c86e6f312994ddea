"""Where updated params go: whatever samples from them."""

from ludic_train.publishers.base import PolicyPublisher
from ludic_train.publishers.in_process import InProcessPublisher

__all__ = ["InProcessPublisher", "PolicyPublisher"]
