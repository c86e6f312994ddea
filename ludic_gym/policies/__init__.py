"""Policies: whatever acts in an environment. They compose by wrapping."""

from ludic_gym.policies.attempts import BestOf, Retry, majority
from ludic_gym.policies.base import PolicyWrapper
from ludic_gym.policies.budgets import Budget, ThinkingBudget
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.parsed import Parsed, RejectCutOff
from ludic_gym.policies.reference import (
    HumanPolicy,
    OraclePolicy,
    RandomPolicy,
    ReplayPolicy,
    ScriptedPolicy,
)
from ludic_gym.policies.tool_use import NativeTools, ReAct, TextTools, ToolUse

__all__ = [
    "BestOf",
    "Budget",
    "ChatPolicy",
    "HumanPolicy",
    "NativeTools",
    "OraclePolicy",
    "Parsed",
    "PolicyWrapper",
    "RandomPolicy",
    "ReAct",
    "RejectCutOff",
    "ReplayPolicy",
    "Retry",
    "ScriptedPolicy",
    "TextTools",
    "ThinkingBudget",
    "ToolUse",
    "majority",
]
