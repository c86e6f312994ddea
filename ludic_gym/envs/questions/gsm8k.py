"""GSM8K: grade-school word problems (Cobbe et al. 2021, arXiv:2110.14168)."""

from __future__ import annotations

from pathlib import Path

from ludic_gym.data.load import load_rows
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.core.question import DatasetEnv, Question
from ludic_gym.errors import DataError
from ludic_gym.graders.numeric import grade_number, parse_number

GSM8K_SAMPLE = Path(__file__).parents[1] / "data" / "gsm8k_sample.jsonl"
GSM8K = "openai/gsm8k"


class GSM8KEnv(DatasetEnv):
    """A grade-school word problem of two to eight steps.

    - Observation: the problem.
    - Action: a text with the number, best in <answer></answer> tags.
    - Reward and info: see `QuestionEnv` and `DatasetEnv`.

    Args:
        data: path of a .jsonl, .jsonl.gz or .parquet file with the fields "question" and "answer",
            of a folder with such a file per split, or a hub id; None for the original.
        split: "train" or "test" of the original, from the hub. Without `split` and `data`, the
            bundled sample of problems in the same style, written for this package.
        render_mode: "ansi", "html" or None.

    ```text
    A carpenter cuts 12 pieces of 24 centimetres from a board of 3 metres. How many centimetres are
    left over?
    > The board has 300 cm and 300 - 12 * 24 = 12. <answer>12</answer>          (reward 1)
    ```
    """

    prompt = (
        "Solve the problem step by step, then give the final number in tags, such as "
        "<answer>42</answer>."
    )
    grade = grade_number

    def __init__(
        self, data: str | None = None, split: str | None = None, render_mode: str | None = None
    ) -> None:
        super().__init__(
            load_rows(data, question, sample=GSM8K_SAMPLE, real=GSM8K, split=split), render_mode
        )


def question(row: Row) -> Question:
    """The problem, and the number after `####` in its solution. Raises DataError without one."""
    # The solutions of GSM8K end in "#### " and the number.
    truth = text_field(row, "answer").rpartition("####")[2].strip()
    if parse_number(truth) is None:
        raise DataError(
            f"{row.where}: field 'answer' must end in '#### ' and a number, got {truth[-80:]!r}"
        )
    return Question(text_field(row, "question"), truth)
