"""PythonFunctions: functions to write, tested by calls (HumanEval, MBPP and similar sets)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludic_gym.data.load import load_rows
from ludic_gym.envs.code.rows import function_problem
from ludic_gym.envs.core.code import CodeEnv

FUNCTIONS_SAMPLE = Path(__file__).parents[1] / "data" / "python_functions_sample.jsonl"
HUMANEVAL = "openai/openai_humaneval"


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
        render_mode: "ansi", "html" or None.
        **options: see `CodeEnv`, from `sandbox` on.

    ~~~text
    Write `def add(a: int, b: int) -> int`, the sum of both.
    > ```python
      def add(a, b):
          return a + b
      ```                                       (reward 1)
    ~~~
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
        rows = load_rows(data, function_problem, sample=FUNCTIONS_SAMPLE, real=HUMANEVAL, split=split)
        super().__init__(rows, render_mode=render_mode, **options)
