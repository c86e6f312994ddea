"""A calculator: expressions of a subset of Python, in an interpreter that can do nothing else."""

from __future__ import annotations

from functools import cache

from ludic_gym.sandbox import MEBIBYTE, Limits, Program
from ludic_gym.sandbox.monty import MontySandbox
from ludic_gym.tools.tool import Tool, as_tool

LIMITS = Limits(cpu_s=2.0, wall_s=30.0, memory_bytes=64 * MEBIBYTE)


@cache
def calculator_tool() -> Tool:
    """The tool `calculator(expression)`. Raises NoSandbox without the extra `tools`."""
    sandbox = MontySandbox()

    async def calculator(expression: str) -> str:
        """Work out an expression in Python's notation, such as (3 + 4) ** 2 / 7 or math.sqrt(2).

        expression: numbers, + - * / // % **, brackets, and the functions of the module math
        """
        result = await sandbox.run(Program(source=f"import math\n{expression}"), limits=LIMITS)
        if result.ended == "exited" and result.exit_code == 0:
            return result.stdout.decode("utf-8", "replace").strip()
        said = result.stderr.decode("utf-8", "replace").strip().splitlines() or [result.ended]
        return f"Error: {said[-1]}"

    return as_tool(calculator, timeout_s=60.0, output_limit=2000)
