"""A tool that runs Python programs in a sandbox."""

from __future__ import annotations

from functools import cache, partial

from ludic_gym.graders.programs.grader import insisted
from ludic_gym.sandbox.choice import open_sandbox, shared_sandbox
from ludic_gym.sandbox.types import MEBIBYTE, ExecResult, Limits, Program, Sandbox
from ludic_gym.tools.tool import Tool, as_tool

LIMITS = Limits(wall_s=30.0, cpu_s=10.0)
CALCULATOR_LIMITS = Limits(cpu_s=2.0, wall_s=30.0, memory_bytes=64 * MEBIBYTE)


def python_tool(
    sandbox: str | Sandbox = "auto", *, allow_unsafe: bool = False, limits: Limits = LIMITS
) -> Tool:
    """The tool `python(code)`, which gives what a program prints; nothing is kept between calls.

    sandbox, allow_unsafe: as in `ludic_gym.sandbox.open_sandbox`.
    Raises NoSandbox, which says what to install, and ConfigError for other names.
    """
    if isinstance(sandbox, str):
        sandbox = shared_sandbox(sandbox, allow_unsafe=allow_unsafe)
    box = sandbox

    async def python(code: str) -> str:
        """Run a Python program and read what it prints. Nothing is kept for the next program.

        code: the whole program; it must print what you want to know
        """
        run = partial(box.run, Program(source=code), limits=limits)
        return told(await insisted(run))

    # The sandbox keeps the time; this is for one that is busy.
    return as_tool(python, timeout_s=20 * limits.wall_s)


def told(result: ExecResult) -> str:
    """What a program printed, and how it ended unless that was well."""
    text = (result.stdout + result.stderr).decode("utf-8", "replace")
    if result.ended == "exited" and result.exit_code == 0:
        return text or "(nothing was printed)"
    how = f"exit code {result.exit_code}" if result.ended == "exited" else result.ended
    return f"{text}\nError: {how}".lstrip()


@cache
def calculator_tool() -> Tool:
    """The tool `calculator(expression)`. Raises NoSandbox without the extra `tools`."""
    sandbox = open_sandbox("monty")

    async def calculator(expression: str) -> str:
        """Work out an expression in Python's notation, such as (3 + 4) ** 2 / 7 or math.sqrt(2).

        expression: numbers, + - * / // % **, brackets, and the functions of the module math
        """
        result = await sandbox.run(
            Program(source=f"import math\n{expression}"), limits=CALCULATOR_LIMITS
        )
        if result.ended == "exited" and result.exit_code == 0:
            return result.stdout.decode("utf-8", "replace").strip()
        said = result.stderr.decode("utf-8", "replace").strip().splitlines() or [result.ended]
        return f"Error: {said[-1]}"

    return as_tool(calculator, timeout_s=60.0, output_limit=2000)
