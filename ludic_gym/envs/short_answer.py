"""ShortAnswer: questions that a few words answer."""

from __future__ import annotations

from pathlib import Path

from ludic_gym.data import Row, load, text_field
from ludic_gym.envs.qa import DatasetEnv, Question
from ludic_gym.errors import DataError
from ludic_gym.graders import grade_exact

SAMPLE = Path(__file__).parent / "data" / "short_answer_sample.jsonl"


class ShortAnswerEnv(DatasetEnv):
    """One question, answered by the words of one of the accepted answers.

    data: "sample" (a few questions written for this package), or the path of a .jsonl or .parquet
        file or a hub id with the fields "question" and "answers" (a list of texts).
    split: the split of a hub data set, "test" unless given; a file has none.

    Case, punctuation and articles do not matter. Reward: 1 for an accepted answer. The truth of the
    last info has the accepted answers, one a line.

        Which river flows through Cairo?
    <answer>the Nile</answer>             (reward 1)
    """

    prompt = "Answer in a few words in <answer></answer> tags."
    grade = grade_exact

    def __init__(
        self, data: str = "sample", split: str | None = None, render_mode: str | None = None
    ) -> None:
        super().__init__(load(data, question, sample=SAMPLE, split=split), render_mode)

    def oracle_action(self) -> str:
        """The first accepted answer. Raises NoOracle when no question is open."""
        return super().oracle_action().splitlines()[0]


def question(row: Row) -> Question:
    """The question and its accepted answers. Raises DataError where one has no word."""
    answers = row.fields.get("answers")
    if not isinstance(answers, list) or not answers:
        raise DataError(f"{row.where}: field 'answers' must be a list of texts, got {answers!r}")
    truth = "\n".join(" ".join(str(answer).split()) for answer in answers)
    try:
        grade_exact("x", truth)
    except DataError as error:
        raise DataError(f"{row.where}: {error}") from error
    return Question(text_field(row, "question"), truth)
