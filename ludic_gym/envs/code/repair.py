"""CodeRepair: a wrong program, visible tests to run, and hidden tests to pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ludic_gym.data.load import load_rows
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.code.rows import function_problem
from ludic_gym.envs.core.base import Info, Turn, checked_range, proceed
from ludic_gym.envs.core.code import CodeEnv, Problem
from ludic_gym.errors import DataError, SandboxError
from ludic_gym.graders.programs.types import CallTests, Verdict, is_fenced, program_in

SAMPLE = Path(__file__).parents[1] / "data" / "code_repair_sample.jsonl"
HELP = "Reply with the whole program in a ```python block, or with run, or with submit."
# Characters of messages and output in an observation.
EXCERPT = 200


@dataclass(frozen=True, slots=True)
class BrokenProgram(Problem):
    """A problem with a wrong program, and the number of visible tests."""

    program: str
    visible: int


class CodeRepairEnv(CodeEnv):
    """A wrong Python function to repair, with visible tests to run and hidden tests to pass.

    - Observation: the task, the program and the visible tests; later the results of these tests.
    - Action: a reply with a ```python block replaces the program and runs the visible tests; "run"
      runs them on the present program; "submit" ends the episode with all tests.
    - Reward: see `CodeEnv`; without a submission the episode ends with the outcome "wrong".
    - Info: see `CodeEnv`; "illegal" in every step is True for any other action.

    Args:
        data: "sample" (written for this package), a path, or a hub id, with the fields "prompt",
            "name", "solution", "calls" and "expected" of `PythonFunctionsEnv`, "program" (the wrong
            one) and "visible" (the number of visible calls, from the first).
        split: split of a hub dataset or a folder.
        turns: number of actions.
        render_mode: "ansi", "html" or None.
        **options: see `CodeEnv`, from `sandbox` on.

    ````text
    `def running_total(numbers)`, the list of the sums of the first 1, 2, 3 ... numbers.

    ```python
    def running_total(numbers):
        total, totals = 1, []
        for number in numbers:
            total += number
            totals.append(total)
        return totals
    ```

    Visible tests:
    running_total([1, 2, 3]) gives [1, 3, 6]
    running_total([]) gives []
    > run
    1 of 2 visible tests pass.
    running_total([1, 2, 3]) should give [1, 3, 6]: wrong, gave [2, 4, 7]
    Turns left: 7
    > ```python
      def running_total(numbers):
          return [sum(numbers[: i + 1]) for i in range(len(numbers))]
      ```
    2 of 2 visible tests pass.
    Turns left: 6
    > submit                    (reward 1)
    ````
    """

    prompt = (
        "A Python function is wrong; repair it. Reply with the whole program in a ```python block "
        "to replace it and run the visible tests, with run to run them, or with submit to hand it "
        "in. Hidden tests decide."
    )
    single_turn = False
    question: BrokenProgram

    def __init__(
        self,
        data: str = "sample",
        split: str | None = None,
        turns: int = 8,
        *,
        render_mode: str | None = None,
        **options: Any,  # noqa: ANN401 (CodeEnv checks them)
    ) -> None:
        rows = load_rows(data, broken_program, sample=SAMPLE, split=split)
        super().__init__(rows, render_mode=render_mode, **options)
        self._turns = checked_range("turns", turns, 1, 10_000)
        self._turns_left = self._turns
        self._program = ""

    def start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        """Draw a problem with a wrong program."""
        text, info = super().start(options)
        self._turns_left = self._turns
        self._program = self.question.program
        tests = "\n".join(f"{call} gives {result!r}" for call, result in visible(self.question))
        return f"{text}\n\n```python\n{self._program}\n```\n\nVisible tests:\n{tests}", info

    def turn(self, action: str) -> Turn:
        """Replace the program, run the visible tests, or submit."""
        self._turns_left -= 1
        if is_fenced(action):
            self._program = program_in(action)
        # Models wrap a command in backquotes or end it with a full stop.
        command = action.rpartition("</think>")[2].strip().strip("`.").lower()
        if command == "submit":
            return self.submit(self._program, {"illegal": False})
        if command == "run" or is_fenced(action):
            return self._run_visible()
        return self._proceed(f"That is no action. {HELP}", illegal=True)

    def _run_visible(self) -> Turn:
        tests = call_tests(self.question)
        count = self.question.visible
        # All visible tests run, because the report is what the next repair starts from.
        first = replace(tests, calls=tests.calls[:count], expected=tests.expected[:count])
        try:
            verdict = self.grader.grade(self._program, first, limits=self.limits, stop=False)
        except (SandboxError, DataError) as error:
            return self.failed(error, {"illegal": False})
        return self._proceed(reported(verdict, self.question), illegal=False)

    def _proceed(self, text: str, *, illegal: bool) -> Turn:
        """Continue, or end as a failure if this was the last turn."""
        if self._turns_left:
            return proceed(f"{text}\nTurns left: {self._turns_left}", info={"illegal": illegal})
        total = len(call_tests(self.question).calls)
        # The program is not run: without a submission even a right one earns nothing.
        verdict = Verdict(outcome="wrong", passed=0, total=total, message="was not submitted")
        return self.judged(verdict, text, {"illegal": illegal})

    def best_action(self) -> str:
        """The right program, then submit."""
        return "submit" if self._program == self.question.truth else super().best_action()


def broken_program(row: Row) -> BrokenProgram:
    """The problem of a row. Raises DataError if a field is missing or of another type."""
    whole = function_problem(row)
    visible_count = row.fields.get("visible")
    tests = whole.tests
    called = isinstance(tests, CallTests) and not tests.reference
    if not called or not isinstance(visible_count, int):
        raise DataError(
            f"{row.where}: needs 'calls', 'expected' and a number 'visible', got {visible_count!r}"
        )
    program = text_field(row, "program")
    return BrokenProgram(whole.text, whole.truth, whole.tests, program, visible_count)


def call_tests(problem: BrokenProgram) -> CallTests:
    """All tests of the problem."""
    assert isinstance(problem.tests, CallTests), "broken_program takes no others"
    return problem.tests


def visible(problem: BrokenProgram) -> list[tuple[str, Any]]:
    """The visible calls in Python's notation, and their results."""
    tests = call_tests(problem)
    calls = [f"{tests.name}({', '.join(map(repr, call))})" for call in tests.calls]
    return list(zip(calls, tests.expected, strict=True))[: problem.visible]


def reported(verdict: Verdict, problem: BrokenProgram) -> str:
    """The observation after a run of the visible tests."""
    text = f"{verdict.passed} of {verdict.total} visible tests pass."
    if verdict.failed >= 0:
        call, result = visible(problem)[verdict.failed]
        # The first failure only: one is repaired at a time, and observations stay short.
        text += f"\n{call} should give {result!r}: {verdict.outcome}, {verdict.message[:EXCERPT]}"
    elif verdict.outcome != "passed":
        text += f"\n{verdict.outcome}: {verdict.message[:EXCERPT]}"
    return f"{text}\nPrinted:\n{verdict.printed[-EXCERPT:]}" if verdict.printed else text
