"""An in-process sampler for the live model, as a chat client."""

from ludic_train.inference.client import EmbeddedChatClient

__all__ = ["EmbeddedChatClient"]
