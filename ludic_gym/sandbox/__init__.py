"""Running programs that nobody trusts: limits and guarantees as data, one protocol."""

from ludic_gym.sandbox.choice import open_sandbox, sandbox_names, shared_sandbox
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.sandbox.types import (
    DEFAULT_LIMITS,
    MEBIBYTE,
    NO_FILES,
    Ended,
    ExecResult,
    Guarantees,
    Limits,
    Program,
    Sandbox,
    Session,
)

__all__ = [
    "DEFAULT_LIMITS",
    "MEBIBYTE",
    "NO_FILES",
    "Ended",
    "ExecResult",
    "Guarantees",
    "Limits",
    "Program",
    "Sandbox",
    "Session",
    "open_sandbox",
    "run_blocking",
    "sandbox_names",
    "shared_sandbox",
]
