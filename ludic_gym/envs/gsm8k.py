"""GSM8K: grade-school word problems (Cobbe et al. 2021, arXiv:2110.14168)."""

from __future__ import annotations

from pathlib import Path

from ludic_gym.data import Row, load, text_field
from ludic_gym.envs.qa import DatasetEnv, Question
from ludic_gym.errors import DataError
from ludic_gym.graders import grade_number, parse_number

SAMPLE = Path(__file__).parent / "data" / "gsm8k_sample.jsonl"


class GSM8KEnv(DatasetEnv):
    """One word problem, answered by a number.

    data: "sample" (a few problems in the same style, written for this package), the path of a
        .jsonl or .parquet file with the fields "question" and "answer", or a hub id:
        "openai/gsm8k" is the original.
    split: the split of a hub data set, "test" unless given; a file has none.
    """

    prompt = "Solve the problem step by step, then give the final number in <answer></answer> tags."
    grade = grade_number

    def __init__(
        self, data: str = "sample", split: str | None = None, render_mode: str | None = None
    ) -> None:
        questions = load(data, question, sample=SAMPLE, config="main", split=split)
        super().__init__(questions, render_mode)


def question(row: Row) -> Question:
    """The problem, and the number after the solution's `####`. Raises DataError without one."""
    truth = text_field(row, "answer").rpartition("####")[2].strip()
    if parse_number(truth) is None:
        raise DataError(
            f"{row.where}: field 'answer' must end in '#### ' and a number, got {truth[-80:]!r}"
        )
    return Question(text_field(row, "question"), truth)
