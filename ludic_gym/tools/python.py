"""A tool that runs Python programs in a sandbox."""

from __future__ import annotations

from functools import partial

from ludic_gym.graders.programs.grader import insisted
from ludic_gym.sandbox import ExecResult, Limits, Program, Sandbox, shared_sandbox
from ludic_gym.tools.tool import Tool, as_tool

LIMITS = Limits(wall_s=30.0, cpu_s=10.0)


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
