"""MATH: competition problems (Hendrycks et al. 2021, arXiv:2103.03874)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ludic_gym.data import Row, load, text_field
from ludic_gym.envs.qa import DatasetEnv, Question
from ludic_gym.errors import ConfigError, DataError
from ludic_gym.graders import grade_maths
from ludic_gym.graders.worker import require_math_verify

SAMPLE = Path(__file__).parent / "data" / "math_sample.jsonl"
LEVELS = range(1, 6)


@dataclass(frozen=True, slots=True)
class Problem(Question):
    """A problem with its level, 1 to 5, and its subject."""

    level: int
    subject: str


class MATHEnv(DatasetEnv):
    r"""One problem, answered by an expression. Needs the extra `math`.

    data: "sample" (a few problems written for this package), the path of a .jsonl or .parquet file
        with the fields "problem", "answer", "level" (1 to 5) and "subject", or a hub id:
        "HuggingFaceH4/MATH-500" has these fields.
    split: the split of a hub data set, "test" unless given; a file has none.
    level, subject: only problems of that level or subject; 0 and "" for all.

    Observation: the problem. Action: the answer in a box, LaTeX or plain. Reward: 1 if it is worth
    the same as the truth; the rule in the last info says how that was found.

        What is the value of $\frac{3}{4} + \frac{5}{6}$?
    It is \boxed{\frac{19}{12}}.             (reward 1)
    """

    prompt = "Solve the problem step by step, then give the final answer in \\boxed{}."
    grade = grade_maths

    def __init__(
        self,
        data: str = "sample",
        split: str | None = None,
        level: int = 0,
        subject: str = "",
        render_mode: str | None = None,
    ) -> None:
        # Said here, because no text that a player types may raise later.
        require_math_verify()
        problems = load(data, problem, sample=SAMPLE, split=split)
        chosen = [p for p in problems if level in (0, p.level) and subject in ("", p.subject)]
        if not chosen:
            subjects = ", ".join(sorted({p.subject for p in problems}))
            raise ConfigError(
                f"no problem has level={level!r} and subject={subject!r}; subjects: {subjects}"
            )
        super().__init__(chosen, render_mode)

    def oracle_action(self) -> str:
        """The truth in a box. Raises NoOracle when no problem is open."""
        return f"\\boxed{{{super().oracle_action()}}}"


def problem(row: Row) -> Problem:
    """The problem. Raises DataError if a field is missing or the level is none."""
    level = row.fields.get("level")
    if not isinstance(level, int) or level not in LEVELS:
        raise DataError(f"{row.where}: field 'level' must be from 1 to 5, got {level!r}")
    answer, subject = text_field(row, "answer"), text_field(row, "subject")
    return Problem(text_field(row, "problem"), answer, level, subject)
