"""PythonFunctions: a function is asked for and called (HumanEval, MBPP and the like)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludic_gym.data.load import load_rows
from ludic_gym.envs.code.rows import function_problem
from ludic_gym.envs.core.base import Turn
from ludic_gym.envs.core.code import CodeEnv
from ludic_gym.graders.programs.types import program_in

SAMPLE = Path(__file__).parents[1] / "data" / "python_functions_sample.jsonl"
REAL = "openai/openai_humaneval"


class PythonFunctionsEnv(CodeEnv):
    """One function to write, tested by calls with hidden results or by hidden assertions.

    split: "test" of HumanEval (Chen et al. 2021, arXiv:2107.03374), from the hub; without it and
        without `data`, the bundled sample, which was written for this package.
    data: another source: a file (.jsonl, .jsonl.gz, .parquet), a folder with one for each split,
        or a hub id. Known are the fields of HumanEval, MBPP and MBPP+ (docs/code.md), and our own:
        "prompt", "name", "solution", and either "calls" with "expected" or "tests".
    **options: those of `CodeEnv`.

    Observation: what the function should do. Action: a reply with the program in a ```python block,
    or nothing but the program. Reward: 1 if all tests pass; see `CodeEnv`.

        Write `def add(a: int, b: int) -> int`, the sum of both.
    ```python
    def add(a, b):
        return a + b
    ```                                               (reward 1)
    """

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
        rows = load_rows(data, function_problem, sample=SAMPLE, real=REAL, split=split)
        super().__init__(rows.items, rows.origin, render_mode=render_mode, **options)

    def _advance(self, action: str) -> Turn:
        return self._graded(program_in(action))
