"""An in-process sampler for the live model, as a chat client; and policies from run folders."""

from ludic_train.inference.client import EmbeddedChatClient
from ludic_train.inference.saved import PolicySpec, policy_from_run, write_policy_spec

__all__ = ["EmbeddedChatClient", "PolicySpec", "policy_from_run", "write_policy_spec"]
