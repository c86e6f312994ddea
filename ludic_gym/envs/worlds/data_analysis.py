"""DataAnalysis: questions about generated tables, answered with Python programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ludic_gym.envs.core.base import Info, Turn, checked_choice, end, pick, proceed
from ludic_gym.envs.core.code import SandboxedEnv, output_of
from ludic_gym.envs.core.levels import LEVELS, SPLITS, Level, Split, draw_in_split
from ludic_gym.envs.worlds.tables import KINDS, PROGRAM, drawn_sales, products_file, sales_file
from ludic_gym.errors import SandboxError
from ludic_gym.graders.extract import extract
from ludic_gym.graders.numeric import marked_number
from ludic_gym.graders.programs.blocks import is_fenced, program_in
from ludic_gym.sandbox.types import Program

# Half of the last digit, and a little for programs that round in between.
TOLERANCE = Fraction(11, 1000)
HELP = "Reply with a program in a ```python block, or with the number in <answer></answer> tags."
PROMPT = (
    "Answer the question about the tables in your working directory. Reply either with a Python "
    "program in a ```python block, which is run there (Python's standard library only; each "
    "program starts anew) and whose output you are shown, or with the answer, as a number rounded "
    "to two decimals in <answer></answer> tags, which ends the task. You have {turns} turns."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Number of orders, of repeated lines, share of missing ratings, and of turns.

    untidy: regions and prices are untidy, and there is a second table.
    """

    orders: int
    repeated: int
    missing: float
    untidy: bool
    turns: int


SIZES: Mapping[str, Size] = {
    "easy": Size(orders=60, repeated=0, missing=0.0, untidy=False, turns=6),
    "medium": Size(orders=300, repeated=20, missing=0.15, untidy=False, turns=8),
    "hard": Size(orders=800, repeated=60, missing=0.15, untidy=True, turns=10),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A question with its tables, its answer, and a program that prints the answer."""

    text: str
    files: tuple[tuple[str, bytes], ...]
    answer: float
    program: str


class DataAnalysisEnv(SandboxedEnv):
    """A question about tables of sales, with a Python interpreter to answer it.

    - Observation: the question and the first lines of each table; later the output of each program.
    - Action: a program in a ```python block, or the answer, best in <answer></answer> tags.
    - Reward: 1 if the answer differs from the true one by at most 0.011, else 0 (component
      "answer"); an episode without an answer fails.
    - Info: "sandbox" in the first info; "illegal" in every step; "truth" in the last one. If the
      sandbox fails, the episode is truncated, and info["error"] has the reason.

    Args:
        level: "easy" (60 orders in one tidy table, 6 turns), "medium" (300 orders with missing
            ratings and repeated lines, 8 turns) or "hard" (800 orders in an untidy table and a
            second table to join, 10 turns).
        **options: see `SandboxedEnv`.
    """

    def __init__(
        self,
        level: Level = "medium",
        split: Split = "all",
        *,
        render_mode: str | None = None,
        **options: Any,  # noqa: ANN401 (SandboxedEnv checks them)
    ) -> None:
        super().__init__(render_mode=render_mode, **options)
        self._level = checked_choice("level", level, LEVELS)
        self._size = SIZES[level]
        self._split = checked_choice("split", split, SPLITS)
        self._turns_left = self._size.turns
        self._printed = ""

    def start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        """Draw tables and a question. Raises NoSandbox if no sandbox works."""
        # First, because no action may raise it later.
        sandbox = self.sandbox_info()
        self.study = draw_in_split(self._drawn_study, self._split)
        self._turns_left = self._size.turns
        self._printed = ""
        prompt = PROMPT.format(turns=self._size.turns)
        return self.study.text, {"system_prompt": prompt, "sandbox": sandbox}

    def turn(self, action: str) -> Turn:
        """Run the program, or judge the answer."""
        self._turns_left -= 1
        if is_fenced(action):
            files = dict(self.study.files)
            try:
                result = self.run(Program(source=program_in(action), files=files))
            except SandboxError as error:
                return self.failed(error, {"illegal": False}, "answer")
            self._printed = output_of(result)
            return self._proceed(self._printed, illegal=False)
        text, _ = extract(action)
        number = None if text is None else marked_number(text)
        if number is None:
            return self._proceed(f"That is neither a program nor a number. {HELP}", illegal=True)
        # Exact, because a float of a number like 1e400 would overflow.
        success = abs(Fraction(number) - Fraction(self.study.answer)) <= TOLERANCE
        return self._ended("", success=success, illegal=False)

    def _proceed(self, text: str, *, illegal: bool) -> Turn:
        if not self._turns_left:
            return self._ended(text, success=False, illegal=illegal)
        return proceed(f"{text}\nTurns left: {self._turns_left}", info={"illegal": illegal})

    def _ended(self, text: str, *, success: bool, illegal: bool) -> Turn:
        info = {"illegal": illegal, "truth": f"{self.study.answer:.2f}"}
        return end(text, success=success, info=info, answer=success)

    def best_action(self) -> str:
        """A program that prints the answer, then what it has printed."""
        if not self._printed:
            return f"```python\n{self.study.program}```"
        return f"<answer>{self._printed.strip()}</answer>"

    def _drawn_study(self) -> Study:
        """A question that the table has rows for."""
        rng, size = self.np_random, self._size
        while True:
            sales = drawn_sales(size.orders, size.missing, rng)
            question = pick(rng, KINDS[self._level])(sales, rng)
            if not math.isnan(question.answer):
                break
        data, head = sales_file(sales, repeated=size.repeated, untidy=size.untidy, rng=rng)
        files = {"sales.csv": data}
        notes = ["The file sales.csv has one line per order and begins:", head]
        if size.repeated:
            notes.append("Some orders are in it twice; count each once. Ratings may be missing.")
        if size.untidy:
            files["products.csv"] = products_file(sales)
            notes.append("Regions that differ only in case or white space are the same region.")
            notes.append("Some prices have the currency EUR before them.")
            notes += ["The file products.csv has one line per product and begins:"]
            notes += files["products.csv"].decode().splitlines()[:3]
        return Study(
            text="\n".join([question.text, *notes]),
            files=tuple(files.items()),
            answer=question.answer,
            program=PROGRAM.format(expression=question.expression),
        )
