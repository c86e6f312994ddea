"""Policies: whatever acts in an environment. They compose by wrapping."""

from ludic_gym.policies.base import PolicyWrapper
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.parsed import Parsed, RejectCutOff
from ludic_gym.policies.reference import (
    HumanPolicy,
    OraclePolicy,
    RandomPolicy,
    ReplayPolicy,
    ScriptedPolicy,
)

__all__ = [
    "ChatPolicy",
    "HumanPolicy",
    "OraclePolicy",
    "Parsed",
    "PolicyWrapper",
    "RandomPolicy",
    "RejectCutOff",
    "ReplayPolicy",
    "ScriptedPolicy",
]
