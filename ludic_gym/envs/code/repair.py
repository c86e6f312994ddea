"""CodeRepair: a program with a mistake, some tests that can be run, and hidden ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ludic_gym.data.load import load_rows
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.code.rows import function_problem
from ludic_gym.envs.core.base import Info, Turn
from ludic_gym.envs.core.code import CodeEnv, Problem, earned, told
from ludic_gym.envs.core.solitaire import checked_range
from ludic_gym.errors import DataError, NoOracle, SandboxError
from ludic_gym.graders.programs.types import CallTests, Verdict, is_fenced, program_in

SAMPLE = Path(__file__).parents[1] / "data" / "code_repair_sample.jsonl"
HELP = "Reply with the whole program in a ```python block, or with run, or with submit."
SHOWN = 200


@dataclass(frozen=True, slots=True)
class BrokenProgram(Problem):
    """A problem with a program that does not solve it, and how many tests are shown."""

    program: str
    visible: int


class CodeRepairEnv(CodeEnv):
    """A function that is wrong: edit it, run the visible tests, submit it to the hidden ones.

    data: "sample" (written for this package), or another source, with the fields of our own
        functions (see `PythonFunctionsEnv`) by "calls" and "expected", besides "program" (the wrong
        one) and "visible" (how many of the calls are shown, from the first).
    split: the split of a hub data set or a folder.
    turns: how many actions there are; whoever has not submitted by then has failed.
    **options: those of `CodeEnv`.

    Observation: the task, the program and the visible tests; then what they gave. Actions: a
    reply with a ```python block replaces the program and runs the visible tests; "run" runs them
    on the program as it is; "submit" ends the episode with all tests. Reward: 1 if all pass; see
    `CodeEnv`. Every info has "illegal": whether the action was none of these.
    """

    prompt = (
        "A Python function is wrong; repair it. Reply with the whole program in a ```python block "
        "to replace it and run the visible tests, with run to run them, or with submit to hand it "
        "in. Hidden tests decide."
    )
    _question: BrokenProgram

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
        super().__init__(rows.items, rows.origin, render_mode=render_mode, **options)
        self._turns = checked_range("turns", turns, 1, 10_000)
        self._turns_left = self._turns
        self._program = ""

    def _start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        text, info = super()._start(options)
        self._turns_left = self._turns
        self._program = self._question.program
        shown = "\n".join(f"{call} gives {result!r}" for call, result in visible(self._question))
        return f"{text}\n\n```python\n{self._program}\n```\n\nVisible tests:\n{shown}", info

    def _advance(self, action: str) -> Turn:
        self._turns_left -= 1
        if is_fenced(action):
            self._program = program_in(action)
        command = action.rpartition("</think>")[2].strip().strip("`.").lower()
        if command == "submit":
            text, reward, terminated, truncated, info = self._graded(self._program)
            return text, reward, terminated, truncated, {**info, "illegal": False}
        if command == "run" or is_fenced(action):
            return self._report()
        return self._on(f"That is no action. {HELP}", illegal=True)

    def _report(self) -> Turn:
        tests = self._question.tests
        assert isinstance(tests, CallTests), "broken_program takes no others"
        count = self._question.visible
        shown = replace(tests, calls=tests.calls[:count], expected=tests.expected[:count])
        try:
            verdict = self._grader.grade(self._program, shown, limits=self._limits, stop=False)
        except (SandboxError, DataError) as error:
            text, reward, terminated, truncated, info = self._failed(error)
            return text, reward, terminated, truncated, {**info, "illegal": False}
        return self._on(reported(verdict, self._question), illegal=False)

    def _on(self, text: str, *, illegal: bool) -> Turn:
        """Go on, or end as a failure where that was the last turn."""
        if self._turns_left:
            return (
                f"{text}\nTurns left: {self._turns_left}",
                0.0,
                False,
                False,
                {"illegal": illegal},
            )
        total = len(getattr(self._question.tests, "calls", ()))
        verdict = Verdict(outcome="wrong", passed=0, total=total, message="was not submitted")
        info = {**self._components(verdict), **told(verdict), **self._about, "illegal": illegal}
        return text, earned(info), True, False, info

    def oracle_action(self) -> str:
        """The right program, then submit. Raises NoOracle when no problem is open."""
        if not self._running:
            raise NoOracle(f"{type(self).__name__}: no problem is open; call reset() first")
        return "submit" if self._program == self._question.truth else super().oracle_action()


def broken_program(row: Row) -> BrokenProgram:
    """The problem. Raises DataError if a field is missing or of another kind."""
    whole = function_problem(row)
    visible_count = row.fields.get("visible")
    if not isinstance(whole.tests, CallTests) or not isinstance(visible_count, int):
        raise DataError(
            f"{row.where}: needs 'calls', 'expected' and a number 'visible', got {visible_count!r}"
        )
    program = text_field(row, "program")
    return BrokenProgram(whole.text, whole.truth, whole.tests, program, visible_count)


def visible(problem: BrokenProgram) -> list[tuple[str, Any]]:
    """The visible calls as Python writes them, and their results."""
    tests = problem.tests
    assert isinstance(tests, CallTests), "broken_program takes no others"
    calls = [f"{tests.name}({', '.join(map(repr, call))})" for call in tests.calls]
    return list(zip(calls, tests.expected, strict=True))[: problem.visible]


def reported(verdict: Verdict, problem: BrokenProgram) -> str:
    """What a player is told of the visible tests."""
    text = f"{verdict.passed} of {verdict.total} visible tests pass."
    if verdict.failed >= 0:
        call, result = visible(problem)[verdict.failed]
        text += f"\n{call} should give {result!r}: {verdict.outcome}, {verdict.message[:SHOWN]}"
    elif verdict.outcome != "passed":
        text += f"\n{verdict.outcome}: {verdict.message[:SHOWN]}"
    return f"{text}\nPrinted:\n{verdict.printed[-SHOWN:]}" if verdict.printed else text
