"""GSM8K and MATH: word problems of grade schools, and problems of competitions.

Cobbe et al. 2021, arXiv:2110.14168; Hendrycks et al. 2021, arXiv:2103.03874.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ludic_gym.data.fields import Fields
from ludic_gym.data.load import OnBadRow, Rows, load_rows
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.core.question import DatasetEnv, Question
from ludic_gym.errors import ConfigError, DataError
from ludic_gym.graders.extract import Grade, boxed
from ludic_gym.graders.math_pool import require_math_verify
from ludic_gym.graders.maths import grade_maths
from ludic_gym.graders.numeric import grade_number, parse_number

GSM8K_SAMPLE = Path(__file__).parents[1] / "data" / "gsm8k_sample.jsonl"


class GSM8KEnv(DatasetEnv):
    """A grade-school word problem of two to eight steps.

    - Observation: the problem.
    - Action: a text with the number, best in <answer></answer> tags.
    - Reward and info: see `QuestionEnv` and `DatasetEnv`.

    Args:
        data: path of a .jsonl, .jsonl.gz, .parquet, .json or .csv file, of a folder with such a
            file per split, or a hub id; None for the original. The layouts of published sets of
            mathematics are recognised.
        split: "train" or "test" of the original, from the hub. Without `split` and `data`, the
            bundled sample of problems in the same style, written for this package.
        fields: columns of "question" and "answer", or "solution", of another layout: see
            `load_rows`. on_bad_row: "skip" leaves out rows that cannot be asked or graded.
    """

    hub_ids = MappingProxyType(dict.fromkeys(("test", "train"), "openai/gsm8k"))
    prompt = (
        "Solve the problem step by step, then give the final number in tags, such as "
        "<answer>42</answer>."
    )
    grade = grade_number

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
            sample=GSM8K_SAMPLE,
            real=self.hub_ids["test"],
            split=split,
            kind="maths",
            fields=fields,
            on_bad_row=on_bad_row,
        )
        super().__init__(rows, render_mode)


def question(row: Row) -> Question:
    """The problem, and the number that is its answer. Raises DataError without one."""
    truth = answer_of(row)
    if parse_number(truth) is None:
        raise DataError(
            f"{row.where}: field 'answer' must be a number, or end in '#### ' and a number, got "
            f"{truth[-80:]!r}"
        )
    return Question(text_field(row, "question"), truth)


def answer_of(row: Row) -> str:
    """The answer of a row: after `####`, in the last box, or the whole field "answer".

    A list of answers is one answer with commas. Raises DataError without one, or for a "solution"
    that marks none.
    """
    marked = "answer" not in row.fields and "solution" in row.fields
    name = "solution" if marked else "answer"
    value = row.fields.get(name)
    if isinstance(value, list) and value and not isinstance(value[0], Mapping):
        texts = [text_field(Row(row.where, {name: part}), name) for part in value]
        text = ", ".join(part.strip().strip("$") for part in texts) if len(texts) > 1 else texts[0]
    else:
        text = text_field(row, name)
    # The solutions of GSM8K end in "#### " and the number.
    _, mark, tail = text.rpartition("####")
    answer = tail.strip() if mark else last_box(text)
    if answer:
        return answer
    if mark:
        raise DataError(f"{row.where}: field {name!r} has nothing after '####', got ''")
    if marked:
        raise DataError(f"{row.where}: field 'solution' has no answer in \\boxed{{}} or after ####")
    answer = text.strip()
    # What sets write for proofs and for failed extractions, and tests of programs in mixed sets.
    if answer.lower() in _NO_ANSWERS or answer.startswith(('{"', '[{"')):
        raise DataError(f"{row.where}: field 'answer' is no answer: {answer[:80]!r}")
    return answer


MATH_SAMPLE = Path(__file__).parents[1] / "data" / "math_sample.jsonl"
_BARE_BOX = re.compile(r"\\boxed\s+(-?[\d.,]*\d|\\?\w+)")
_LEVEL = re.compile(r"(?:Level )?([1-5?])")
_NO_ANSWERS = ("proof", "notfound", "not found")


@dataclass(frozen=True, slots=True)
class Problem(Question):
    """A problem with its level, 1 to 5, or 0 if its author gave none, and its subject."""

    level: int
    subject: str


class MATHEnv(DatasetEnv):
    r"""A competition problem whose answer is an expression. Requires the extra `math`.

    - Observation: the problem.
    - Action: the answer in \boxed{}, as LaTeX or plain text.
    - Reward: 1 if the answer is mathematically equal to the truth, else 0 (component "correct").
    - Info: see `QuestionEnv` and `DatasetEnv`; "rule" also names the comparison that decided.

    Args:
        data: path of a .jsonl, .jsonl.gz, .parquet, .json or .csv file, of a folder with such a
            file per split, or a hub id; None for the original. The layouts of published sets of
            mathematics are recognised.
        split: "test" for MATH-500, "train" for the 12,000 other problems of MATH, both from the
            hub. Without `split` and `data`, the bundled sample, written for this package.
        level: only problems of this level; 0 for all.
        fields: columns of "question", of "answer", or of a "solution" that marks it, and maybe of
            "level" (1 to 5 or "Level 1" ...) and "subject": see `load_rows`.
        on_bad_row: "skip" leaves out rows that cannot be asked or graded.
    """

    hub_ids = MappingProxyType(
        {"test": "HuggingFaceH4/MATH-500", "train": "qwedsacf/competition_math"}
    )
    # Expressions are compared in another process, which may take seconds.
    metadata = {**DatasetEnv.metadata, "blocking": True}  # noqa: RUF012
    prompt = "Solve the problem step by step, then give the final answer in \\boxed{}."
    grade = grade_maths

    def __init__(
        self,
        data: str | None = None,
        split: str | None = None,
        level: int = 0,
        *,
        fields: Fields | None = None,
        on_bad_row: OnBadRow = "error",
        render_mode: str | None = None,
    ) -> None:
        # Raised here, because no action may raise later.
        require_math_verify()
        rows = problems_of(data, split, fields, on_bad_row)
        if level:
            rows = rows.chosen(lambda problem: problem.level == level)
        if not rows:
            raise ConfigError(f"no problem has level={level!r}")
        super().__init__(rows, render_mode)

    def grade_action(self, action: str) -> Grade:
        """The grade, for which boxes of the question do not count."""
        return grade_maths(action, self.question.truth, question=self.question.text)

    def best_action(self) -> str:
        """The truth in a box."""
        return f"\\boxed{{{super().best_action()}}}"


def problems_of(
    data: str | None,
    split: str | None,
    fields: Fields | None = None,
    on_bad_row: OnBadRow = "error",
) -> Rows[Problem]:
    """The problems and their origin.

    The hub's set of 12,500 problems contains MATH-500, which is for tests: "train" omits these.
    """

    def loaded(data: str | None, split: str | None) -> Rows[Problem]:
        return load_rows(
            data,
            problem,
            sample=MATH_SAMPLE,
            real=MATHEnv.hub_ids["train" if split == "train" else "test"],
            split=split,
            kind="maths",
            fields=fields,
            on_bad_row=on_bad_row,
        )

    rows = loaded(data, split)
    if data is not None or split != "train":
        return rows
    # By text, because the two data sets number their problems in different ways.
    test = {problem.text for problem in loaded(None, "test")}
    return rows.chosen(lambda problem: problem.text not in test)


def problem(row: Row) -> Problem:
    """The problem of a row. Raises DataError if a field is missing, or no answer is marked."""
    level = _LEVEL.fullmatch(str(row.fields.get("level", "?")))
    if level is None:
        raise DataError(
            f"{row.where}: field 'level' must be from 1 to 5, got {row.fields['level']!r}"
        )
    # Some problems have the level "?".
    number = 0 if level[1] == "?" else int(level[1])
    subject = row.fields.get("subject") or ""
    return Problem(text_field(row, "question"), answer_of(row), number, str(subject))


def last_box(solution: str) -> str:
    r"""The content of a solution's last box, "" without one; authors also write `\boxed 5`."""
    solution = solution.replace("\\fbox", "\\boxed")
    boxes = boxed(solution) or _BARE_BOX.findall(solution)
    # The last box, because solutions also box intermediate results.
    return boxes[-1].strip() if boxes else ""
