"""PythonFunctions and StdinStdout: functions and programs to write, tested in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ludic_gym.data.fields import Fields
from ludic_gym.data.load import OnBadRow, load_rows
from ludic_gym.envs.code.rows import function_problem, program_problem
from ludic_gym.envs.core.code import CodeEnv, Problem
from ludic_gym.envs.core.question import Question
from ludic_gym.graders.programs.types import CallTests

FUNCTIONS_SAMPLE = Path(__file__).parents[1] / "data" / "python_functions_sample.jsonl"


class PythonFunctionsEnv(CodeEnv):
    """A Python function to write, tested by hidden calls or hidden assertions.

    - Observation: the description of the function.
    - Action: a reply with the program in a ```python block, or the program alone.
    - Reward and info: see `CodeEnv`.

    Args:
        data: path of a .jsonl, .jsonl.gz, .parquet, .json or .csv file, of a folder with such a
            file per split, or a hub id; None for HumanEval. The columns are those of HumanEval(+)
            or MBPP(+), or "prompt", "name", "solution" and either "calls" with "expected" or
            "tests", a list of assertions.
        split: "test" of HumanEval (Chen et al. 2021, arXiv:2107.03374), from the hub. Without
            `split` and `data`, the bundled sample, written for this package.
        fields: columns of these fields in another layout: see `load_rows`.
        on_bad_row: "skip" leaves out rows that cannot be asked or graded.
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
        fields: Fields | None = None,
        on_bad_row: OnBadRow = "error",
        render_mode: str | None = None,
        **options: Any,  # noqa: ANN401 (CodeEnv checks them)
    ) -> None:
        rows = load_rows(
            data,
            function_problem,
            sample=FUNCTIONS_SAMPLE,
            real=self.hub_ids["test"],
            split=split,
            fields=fields,
            on_bad_row=on_bad_row,
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
        data: path of a .jsonl, .jsonl.gz, .parquet, .json or .csv file, of a folder with such a
            file per split, or a hub id; None for APPS. The layouts of published sets of programs
            are recognised. Rows without cases are left out.
        split: "train" or "test" of APPS (Hendrycks et al. 2021, arXiv:2105.09938), from the hub.
            Without `split` and `data`, the bundled sample, written for this package.
        fields: columns of another layout, see `load_rows`: of "prompt" and "tests" (pairs of input
            and output, or those of APPS, CodeContests, LiveCodeBench or DeepCoder, also as JSON);
            maybe of "solution", "starter" (code that the answer begins with), "comparator" ("exact"
            up to line breaks at the end, "words" up to white space, "numbers" or "lines") and
            "tolerance".
        on_bad_row: "skip" leaves out rows that cannot be asked or graded.
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
        fields: Fields | None = None,
        on_bad_row: OnBadRow = "error",
        render_mode: str | None = None,
        **options: Any,  # noqa: ANN401 (CodeEnv checks them)
    ) -> None:
        rows = load_rows(
            data,
            program_problem,
            sample=PROGRAMS_SAMPLE,
            real=self.hub_ids["test"],
            split=split,
            kind="program",
            fields=fields,
            on_bad_row=on_bad_row,
        )
        super().__init__(rows, render_mode=render_mode, **options)

    def ask(self, options: Mapping[str, Any]) -> Question:
        """The problem of the row, and the prompt for its kind."""
        problem = super().ask(options)
        calls = isinstance(problem, Problem) and isinstance(problem.tests, CallTests)
        self.prompt = PythonFunctionsEnv.prompt if calls else type(self).prompt
        return problem
