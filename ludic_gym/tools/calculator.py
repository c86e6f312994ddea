"""A calculator: expressions of a subset of Python, in an interpreter that can do nothing else."""

from __future__ import annotations

import atexit
import importlib.util
import os
from typing import TYPE_CHECKING

from ludic_gym.errors import ConfigError
from ludic_gym.tools.tool import Tool, as_tool

if TYPE_CHECKING:
    from pydantic_monty import Monty

SECONDS = 2.0
MEMORY_BYTES = 64 * 2**20
DEEPEST = 200


def calculator_tool() -> Tool:
    """The tool `calculator(expression)`. Raises ConfigError without the extra `tools`."""
    if importlib.util.find_spec("pydantic_monty") is None:
        raise ConfigError("a calculator needs pydantic-monty: pip install 'ludic-gym[tools]'")
    return as_tool(calculator, timeout_s=60.0, output_limit=2000)


def calculator(expression: str) -> str:
    """Work out an expression in Python's notation, such as (3 + 4) ** 2 / 7 or math.sqrt(2).

    expression: numbers, + - * / // % **, brackets, and the functions of the module math
    """
    from pydantic_monty import MontyError, ResourceLimits

    limits = ResourceLimits(
        max_feed_duration_secs=SECONDS, max_memory=MEMORY_BYTES, max_recursion_depth=DEEPEST
    )
    try:
        with _pool().checkout(limits=limits) as session:
            return str(session.feed_run(f"import math\n{expression}"))
    except MontyError as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        return f"Error: {said[-1]}"


_made: list[Monty] = []


def _pool() -> Monty:
    """The interpreters that all of this process share; they start at first use."""
    if not _made:
        from pydantic_monty import Monty

        pool = Monty()
        pool.__enter__()
        _made.append(pool)
        atexit.register(_close)
    return _made[0]


def _close() -> None:
    while _made:
        _made.pop().__exit__(None, None, None)


_ABANDONED: list[Monty] = []


def _forget() -> None:
    # A fork's interpreters are the parent's: to close them would end the parent's.
    _ABANDONED.extend(_made)
    _made.clear()


os.register_at_fork(after_in_child=_forget)
