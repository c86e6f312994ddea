"""Tools that run Python programs in a sandbox, and evaluate expressions."""

from functools import partial

from ludic_gym.graders.programs.grader import retry_sandbox
from ludic_gym.sandbox.choice import shared_sandbox
from ludic_gym.sandbox.types import MEBIBYTE, ExecResult, Limits, Program, Sandbox
from ludic_gym.tools.tool import Tool, as_tool

LIMITS = Limits(wall_s=120.0, cpu_s=10.0)
CALCULATOR_LIMITS = Limits(cpu_s=2.0, wall_s=30.0, memory_bytes=128 * MEBIBYTE)
CALCULATOR = """\
import math, sys
names = {each.__name__: each for each in (abs, float, int, math, max, min, round, sum)}
print(repr(eval(sys.argv[1].strip(), {"__builtins__": {}, **names})))
"""


def python_tool(
    sandbox: str | Sandbox = "auto", *, allow_unsafe: bool = False, limits: Limits = LIMITS
) -> Tool:
    """The tool `python(code)`, which returns a program's output; calls share no state.

    sandbox, allow_unsafe: as in `open_sandbox`. limits: of each program.
    A program that fails is no error: its traceback is part of the text. A sandbox that fails is
    tried again, then its error becomes the text.
    Raises NoSandbox with the packages to install, and ConfigError for other names.
    """
    box = _opened(sandbox, allow_unsafe)

    async def python(code: str) -> str:
        """Run a Python program and read what it prints. Nothing is kept for the next program.

        code: the whole program; it must print what you want to know
        """
        run = partial(box.run, Program(source=code), limits=limits)
        return output_of(await retry_sandbox(run))

    # The sandbox has the program's time limit; this one includes the wait for a free place.
    return as_tool(python, timeout_s=5 * limits.wall_s)


def output_of(result: ExecResult) -> str:
    r"""The program's output, and the reason for its end unless it succeeded.

    stdout first, then stderr. Bytes that are not UTF-8 become U+FFFD.

    >>> output_of(ExecResult(stdout=b"", stderr=b"no", exit_code=1, ended="exited", wall_s=0.1))
    'no\nError: exit code 1'
    """
    text = (result.stdout + result.stderr).decode("utf-8", "replace")
    if result.ended == "exited" and result.exit_code == 0:
        return text or "(nothing was printed)"
    how = f"exit code {result.exit_code}" if result.ended == "exited" else result.ended
    return f"{text}\nError: {how}".lstrip()


def calculator_tool(sandbox: str | Sandbox = "auto", *, allow_unsafe: bool = False) -> Tool:
    """The tool `calculator(expression)`.

    sandbox, allow_unsafe: as in `python_tool`, whose errors are raised.
    """
    box = _opened(sandbox, allow_unsafe)

    async def calculator(expression: str) -> str:
        """Work out an expression in Python's notation, such as (3 + 4) ** 2 / 7 or math.sqrt(2).

        expression: numbers, + - * / // % **, brackets, and the functions of the module math
        """
        program = Program(source=CALCULATOR, arguments=(expression,))
        result = await retry_sandbox(partial(box.run, program, limits=CALCULATOR_LIMITS))
        if result.ended == "exited" and result.exit_code == 0:
            return result.stdout.decode("utf-8", "replace").strip()
        # The last line is the message. Those before it are about the program around the expression.
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines() or [result.ended]
        return f"Error: {lines[-1]}"

    return as_tool(calculator, timeout_s=5 * CALCULATOR_LIMITS.wall_s, output_limit=2000)


def _opened(sandbox: str | Sandbox, allow_unsafe: bool) -> Sandbox:
    if isinstance(sandbox, str):
        return shared_sandbox(sandbox, allow_unsafe=allow_unsafe)
    return sandbox
