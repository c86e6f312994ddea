"""ShortAnswer: questions with answers of a few words."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from ludic_gym.data.fields import Fields
from ludic_gym.data.load import OnBadRow, load_rows
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.core.question import DatasetEnv, Question
from ludic_gym.errors import DataError
from ludic_gym.graders.text import grade_exact

SAMPLE = Path(__file__).parents[1] / "data" / "short_answer_sample.jsonl"


class ShortAnswerEnv(DatasetEnv):
    """A question with a list of accepted short answers.

    - Observation: the question.
    - Action: the answer, best in <answer></answer> tags. Case, punctuation and articles do not
      matter.
    - Reward and info: see `QuestionEnv` and `DatasetEnv`; "truth" has one accepted answer per line.

    Args:
        data: path of a .jsonl, .jsonl.gz, .parquet, .json or .csv file, of a folder with such a
            file per split, or a hub id; None for Natural Questions. The layouts of published sets
            of short answers are recognised.
        split: "test" or "train" of Natural Questions (Kwiatkowski et al. 2019; open version of Lee
            et al. 2019, arXiv:1906.00300), from the hub. Without `split` and `data`, the bundled
            sample, written for this package.
        fields: columns of "question" and "answers" (a text, a number or a list of these) of another
            layout: see `load_rows`. on_bad_row: "skip" leaves out rows that cannot be graded.
    """

    hub_ids = MappingProxyType(dict.fromkeys(("test", "train"), "google-research-datasets/nq_open"))
    prompt = "Answer in a few words in tags, such as <answer>blue whale</answer>."
    grade = grade_exact

    def __init__(
        self,
        data: str | None = None,
        split: str | None = None,
        *,
        fields: Fields | None = None,
        on_bad_row: OnBadRow = "error",
        render_mode: str | None = None,
    ) -> None:
        rows = load_rows(
            data,
            question,
            sample=SAMPLE,
            real=self.hub_ids["test"],
            split=split,
            kind="short",
            fields=fields,
            on_bad_row=on_bad_row,
        )
        super().__init__(rows, render_mode)

    def best_action(self) -> str:
        """The first accepted answer."""
        return self.question.truth.splitlines()[0]


def question(row: Row) -> Question:
    """The question and its accepted answers. Raises DataError if one of them has no word."""
    answers = row.fields.get("answers")
    if not isinstance(answers, list):
        answers = [text_field(row, "answers")]
    # One answer a line, so no answer may have a line break of its own.
    truth = "\n".join(dict.fromkeys(" ".join(str(answer).split()) for answer in answers))
    if not truth:
        raise DataError(f"{row.where}: field 'answers' has no answer: {answers!r}")
    try:
        # The grader rejects answers without a word; here it still has the row to name.
        grade_exact("x", truth)
    except DataError as error:
        raise DataError(f"{row.where}: {error}") from error
    return Question(text_field(row, "question"), truth)
