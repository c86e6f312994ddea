"""CodeEnv: problems whose answer is a program. SandboxedEnv: actions that run programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from ludic_gym.data.load import Rows
from ludic_gym.envs.core.base import Info, TextEnv, Turn, end
from ludic_gym.envs.core.question import DatasetEnv, Question
from ludic_gym.errors import DataError, NoOracle, SandboxError
from ludic_gym.graders.programs.blocks import PYTHON, program_in
from ludic_gym.graders.programs.grader import Grader, grader_for
from ludic_gym.graders.programs.types import AssertTests, CallTests, ProgramTests
from ludic_gym.sandbox.choice import shared_sandbox
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.sandbox.types import MEBIBYTE, ExecResult, Guarantees, Limits, Program, Sandbox
from ludic_gym.tools.tool import shorten

# Wall time per second of CPU time; a busy machine gives a program only part of a core.
PATIENCE = 12.0
# Taken from the reward of a syntax error or an empty program.
PENALTY = 0.1
_VERDICT_KEYS = ("outcome", "passed", "total", "message", "printed")
# Vector environments run a blocking environment on a thread of its own.
_BLOCKING = {**TextEnv.metadata, "blocking": True}


@dataclass(frozen=True, slots=True)
class Problem(Question):
    """A task in words, a program that solves it ("" if none is known), and its tests.

    head: the beginning of the program, up to the head of a function, where the task shows it: a
        base model goes on with the body.
    """

    tests: ProgramTests
    head: str = ""


P = TypeVar("P", bound=Problem)


class CodeEnv(DatasetEnv):
    """A problem whose answer is a program, run in a sandbox and tested from outside it.

    A subclass sets `prompt` and passes its rows to `__init__`.

    - Observation: the problem; "" after the answer.
    - Action: a reply with the program in a fenced block, or the program alone.
    - Reward: 1 if all tests pass, else 0 (component "tests"), minus 0.1 for a syntax error
      ("syntax") or an empty program ("empty").
    - Info: "sandbox" and the keys of `DatasetEnv` in the first and the last info. At the end also
      "outcome" ("passed", "wrong", "raised", "timeout", "crashed", "syntax", "missing" or "empty"),
      the number of tests "passed" of the "total", a "message" about the first test that failed,
      and the end of the output, "printed".

    If the sandbox fails in all attempts, the episode is truncated with the outcome "error", and
    info["error"] has the reason.

    Attributes:
        languages: names of fenced blocks that hold the program; the oracle uses the first.
        limits: CPU time, wall time and memory of one submission, all tests together.

    Args:
        rows: the problems and their origin, as `load_rows` returns them.
        sandbox: "auto", the name of a sandbox, or a Sandbox.
        allow_unsafe: run programs without protection if no sandbox works.
        partial_credit: reward the share of tests that pass instead of 0 or 1.
        cpu_s: CPU seconds of one submission.
        memory_mb: memory of one submission, in MiB.
    """

    metadata = _BLOCKING
    languages: ClassVar[tuple[str, ...]] = PYTHON
    question: Problem

    def __init__(
        self,
        rows: Rows[P],
        *,
        sandbox: str | Sandbox = "auto",
        allow_unsafe: bool = False,
        partial_credit: bool = False,
        cpu_s: float = 10.0,
        memory_mb: int = 512,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(rows, render_mode)
        self.limits = _limits(cpu_s, memory_mb)
        self._sandbox = sandbox
        self._allow_unsafe = allow_unsafe
        self._partial_credit = partial_credit

    def __deepcopy__(self, memo: dict[int, Any]) -> CodeEnv:
        # Copies run their programs in the same sandbox, which may hold processes.
        memo[id(self._sandbox)] = self._sandbox
        return super().__deepcopy__(memo)

    @property
    def grader(self) -> Grader:
        """The grader of the sandbox. Raises NoSandbox, which names the packages to install."""
        return grader_for(self._sandbox, allow_unsafe=self._allow_unsafe)

    def start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        """Draw a problem. Raises NoSandbox if no sandbox works."""
        # Raised here, because no action may raise later.
        sandbox = self.grader.sandbox
        self.about["sandbox"] = sandbox_text(sandbox.name, sandbox.guarantees)
        return super().start(options)

    def turn(self, action: str) -> Turn:
        """Run the tests on the program in the action, and end the episode with the verdict."""
        tests = self.question.tests
        name = tests.name if isinstance(tests, CallTests | AssertTests) else ""
        program = program_in(action, self.languages, defines=name, head=self.question.head)
        # Without partial credit the first failure decides, and the other tests need not run.
        stop = not self._partial_credit
        try:
            verdict = self.grader.grade(program, tests, limits=self.limits, stop=stop)
        except (SandboxError, DataError) as error:
            # Truncated: a failure of the machine says nothing about the program, and must not be
            # learned from.
            failure = {"outcome": "error", "error": f"{type(error).__name__}: {error}"}
            info = {**failure, **self.about}
            return end(success=False, truncated=True, info=info, tests=0.0, syntax=0.0, empty=0.0)
        self.verdict = f"{program}\n\n{verdict.outcome}"
        success = verdict.outcome == "passed"
        # An empty program is judged without tests: its total is 0.
        share = verdict.passed / max(verdict.total, 1)
        return end(
            success=success,
            info={**{name: getattr(verdict, name) for name in _VERDICT_KEYS}, **self.about},
            tests=share if self._partial_credit else success,
            syntax=-PENALTY if verdict.outcome == "syntax" else 0.0,
            empty=-PENALTY if verdict.outcome == "empty" else 0.0,
        )

    def best_action(self) -> str:
        """A program that passes, in a fenced block. Raises NoOracle if none is known."""
        program = super().best_action()
        if not program:
            raise NoOracle(f"{type(self).__name__}: no solution of this problem is known")
        return f"```{self.languages[0]}\n{program}\n```"


def _limits(cpu_s: float, memory_mb: int) -> Limits:
    return Limits(cpu_s=cpu_s, wall_s=PATIENCE * cpu_s, memory_bytes=memory_mb * MEBIBYTE)


def sandbox_text(name: str, guarantees: Guarantees) -> str:
    """A sandbox on one line: "native: network, filesystem ..."."""
    held = [one for one in guarantees.__slots__ if getattr(guarantees, one)]
    return f"{name}: {', '.join(held) or 'no protection'}"


# Characters of a program's output in an observation.
OUTPUT = 3000


class SandboxedEnv(TextEnv):
    """Runs programs of the player in the sandbox that this process shares.

    A subclass calls `run` and, if that raises SandboxError, returns `failed`.

    Attributes:
        limits: of each program.

    Args:
        sandbox: "auto" or the name of a sandbox.
        allow_unsafe: run programs without protection if no sandbox works.
        cpu_s: CPU seconds of one program.
        memory_mb: memory of one program, in MiB.
    """

    metadata = _BLOCKING

    def __init__(
        self,
        *,
        sandbox: str = "auto",
        allow_unsafe: bool = False,
        cpu_s: float = 10.0,
        memory_mb: int = 512,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.limits = _limits(cpu_s, memory_mb)
        self._sandbox = sandbox
        self._allow_unsafe = allow_unsafe

    def sandbox_info(self) -> str:
        """The sandbox and its guarantees. Raises NoSandbox if none works."""
        sandbox = shared_sandbox(self._sandbox, allow_unsafe=self._allow_unsafe)
        return sandbox_text(sandbox.name, sandbox.guarantees)

    def run(self, program: Program) -> ExecResult:
        """The result of the program. Raises SandboxError if the sandbox fails."""
        sandbox = shared_sandbox(self._sandbox, allow_unsafe=self._allow_unsafe)
        return run_blocking(sandbox.run(program, limits=self.limits))

    def failed(self, error: Exception, info: Info, component: str) -> Turn:
        """The last turn of an episode whose sandbox failed."""
        # Truncated: a failure of the machine says nothing about the player.
        info = {**info, "error": f"{type(error).__name__}: {error}"}
        parts: dict[str, Any] = {component: 0.0}
        return end(success=False, truncated=True, info=info, **parts)


def output_of(result: ExecResult) -> str:
    """The output of a program, and how it ended unless with exit code 0."""
    parts = [
        shorten(text, OUTPUT)
        for text in (result.stdout.decode(errors="replace"), result.stderr.decode(errors="replace"))
        if text
    ]
    if result.ended != "exited":
        parts.append(f"The program was ended: {result.ended}.")
    elif result.exit_code:
        parts.append(f"Exit code {result.exit_code}.")
    return "\n".join(part.rstrip("\n") for part in parts) or "(no output)"
