"""StdinStdout: a whole program is asked for, which reads and writes (APPS, contests)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ludic_gym.data.load import load_rows
from ludic_gym.envs.code.rows import stdin_problem
from ludic_gym.envs.core.base import Turn
from ludic_gym.envs.core.code import CodeEnv, Problem
from ludic_gym.errors import DataError
from ludic_gym.graders.programs.types import program_in

SAMPLE = Path(__file__).parents[1] / "data" / "stdin_stdout_sample.jsonl"
REAL = "codeparrot/apps"


class StdinStdoutEnv(CodeEnv):
    """One program to write, run once per hidden case with that on stdin.

    split: "train" or "test" of APPS (Hendrycks et al. 2021, arXiv:2105.09938), from the hub;
        without it and without `data`, the bundled sample, which was written for this package.
    data: another source: a file (.jsonl, .jsonl.gz, .parquet), a folder with one for each split,
        or a hub id; with the fields of APPS, or our own: "prompt", "cases" (pairs of input and
        output), "solution", and perhaps "comparator" and "tolerance". Rows of APPS that call a
        function, or have no cases, are left out.
    comparator: "exact" (but for line breaks at the end), "words" (white space does not matter) or
        "numbers" (words, numbers within a tolerance of 1e-6); "" for what the row says, which is
        "words" where it says nothing.
    case_s: seconds for each case.
    **options: those of `CodeEnv`.

    Observation: what the program should do. Action: a reply with it in a ```python block, or
    nothing but the program. It must end by itself with exit code 0.

        Read two integers from one line and write their sum.
    ```python
    print(sum(map(int, input().split())))
    ```                                               (reward 1)
    """

    prompt = (
        "Write the Python program that is asked for. It reads from standard input and writes to "
        "standard output. Reply with the whole program in a ```python block."
    )

    def __init__(
        self,
        data: str | None = None,
        split: str | None = None,
        comparator: str = "",
        case_s: float = 10.0,
        *,
        render_mode: str | None = None,
        **options: Any,  # noqa: ANN401 (CodeEnv checks them)
    ) -> None:
        found = load_rows(data, stdin_problem, sample=SAMPLE, real=REAL, split=split)
        problems = tuple(with_case_options(p, comparator, case_s) for p in found.items if p)
        if not problems:
            raise DataError(f"{found.origin}: no row has cases of input and output")
        super().__init__(problems, found.origin, render_mode=render_mode, **options)

    def _advance(self, action: str) -> Turn:
        return self._graded(program_in(action))


def with_case_options(problem: Problem, comparator: str, case_s: float) -> Problem:
    """The problem, compared like this and with that much time for each case."""
    options: dict[str, Any] = {"case_s": case_s}
    if comparator:
        options["comparator"] = comparator
    return replace(problem, tests=replace(problem.tests, **options))
