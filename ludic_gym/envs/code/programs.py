"""PythonFunctions and StdinStdout: functions and programs to write, tested in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ludic_gym.data.load import Rows, load_rows
from ludic_gym.envs.code.rows import function_problem, stdin_problem
from ludic_gym.envs.core.code import CodeEnv, Problem
from ludic_gym.envs.core.question import Question
from ludic_gym.errors import DataError
from ludic_gym.graders.programs.types import CallTests

FUNCTIONS_SAMPLE = Path(__file__).parents[1] / "data" / "python_functions_sample.jsonl"


class PythonFunctionsEnv(CodeEnv):
    """A Python function to write, tested by hidden calls or hidden assertions.

    - Observation: the description of the function.
    - Action: a reply with the program in a ```python block, or the program alone.
    - Reward and info: see `CodeEnv`.

    Args:
        data: path of a .jsonl, .jsonl.gz or .parquet file, of a folder with such a file per split,
            or a hub id; None for HumanEval. The fields are those of HumanEval, MBPP or MBPP+, or
            "prompt", "name", "solution" and either "calls" with "expected" or "tests".
        split: "test" of HumanEval (Chen et al. 2021, arXiv:2107.03374), from the hub. Without
            `split` and `data`, the bundled sample, written for this package.
        **options: see `CodeEnv`, from `sandbox` on.
    """

    hub_ids = MappingProxyType(dict.fromkeys(("test", "train"), "openai/openai_humaneval"))
    prompt = (
        "Write the Python function that is asked for. Reply with the whole function, with all "
        "imports and helpers it needs, in a ```python block."
    )

    def __init__(
        self,
        data: str | None = None,
        split: str | None = None,
        *,
        render_mode: str | None = None,
        **options: Any,  # noqa: ANN401 (CodeEnv checks them)
    ) -> None:
        rows = load_rows(
            data, function_problem, sample=FUNCTIONS_SAMPLE, real=self.hub_ids["test"], split=split
        )
        super().__init__(rows, render_mode=render_mode, **options)


PROGRAMS_SAMPLE = Path(__file__).parents[1] / "data" / "stdin_stdout_sample.jsonl"


class StdinStdoutEnv(CodeEnv):
    """A Python program to write, run once per hidden case with the case's input on stdin.

    The program must end with exit code 0. Rows of APPS that name a function ask for this function
    instead, which is tested by hidden calls, and their system prompt says so.

    - Observation: the description of the program.
    - Action: a reply with the program in a ```python block, or the program alone.
    - Reward and info: see `CodeEnv`.

    Args:
        data: path of a .jsonl, .jsonl.gz or .parquet file, of a folder with such a file per split,
            or a hub id; None for APPS. The fields are those of APPS, or "prompt", "cases" (pairs of
            input and output), "solution", and optionally "comparator" ("exact" up to line breaks
            at the end, "words" up to white space, or "numbers") and "tolerance". Rows of APPS
            without cases are skipped.
        split: "train" or "test" of APPS (Hendrycks et al. 2021, arXiv:2105.09938), from the hub.
            Without `split` and `data`, the bundled sample, written for this package.
        **options: see `CodeEnv`, from `sandbox` on.
    """

    hub_ids = MappingProxyType(dict.fromkeys(("test", "train"), "codeparrot/apps"))
    prompt = (
        "Write the Python program that is asked for. It reads from standard input and writes to "
        "standard output. Reply with the whole program in a ```python block."
    )

    def __init__(
        self,
        data: str | None = None,
        split: str | None = None,
        *,
        render_mode: str | None = None,
        **options: Any,  # noqa: ANN401 (CodeEnv checks them)
    ) -> None:
        rows = load_rows(
            data, stdin_problem, sample=PROGRAMS_SAMPLE, real=self.hub_ids["test"], split=split
        )
        problems = tuple(problem for problem in rows.items if problem)
        if not problems:
            raise DataError(f"{rows.origin}: no row has cases of input and output")
        super().__init__(Rows(problems, rows.origin), render_mode=render_mode, **options)

    def ask(self, options: Mapping[str, Any]) -> Question:
        """The problem of the row, and the prompt for its kind."""
        problem = super().ask(options)
        calls = isinstance(problem, Problem) and isinstance(problem.tests, CallTests)
        self.prompt = PythonFunctionsEnv.prompt if calls else type(self).prompt
        return problem
