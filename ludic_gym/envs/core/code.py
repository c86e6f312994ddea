"""CodeEnv: what the environments share in which programs are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludic_gym.data.load import Origin
from ludic_gym.envs.core.base import Info, TextEnv, Turn, ending
from ludic_gym.envs.core.question import DatasetEnv, Question
from ludic_gym.errors import ConfigError, DataError, NoOracle, SandboxError
from ludic_gym.graders.programs.grader import Grader, grader_for
from ludic_gym.graders.programs.types import ProgramTests, Verdict
from ludic_gym.sandbox.types import MEBIBYTE, Guarantees, Limits, Sandbox

# Wall time for each second of CPU time: machines are busy at times.
PATIENCE = 4.0


@dataclass(frozen=True, slots=True)
class Problem(Question):
    """What to write, a program that does it ("" if none is known), and the tests of programs."""

    tests: ProgramTests


class CodeEnv(DatasetEnv):
    """A problem whose answer is a program, run in a sandbox and tested from outside it.

    sandbox: "auto", the name of a sandbox, or a Sandbox. allow_unsafe: where none works, run
        programs without any protection.
    partial_credit: reward the share of the tests that pass; else all of them earn 1.
    penalty: what a syntax error, or no program at all, costs.
    cpu_s, memory_mb: what one submission may use, all its tests together.

    The last info has "success", the components "reward/tests", "reward/syntax" and
    "reward/empty", the "outcome" ("passed", "wrong", "raised", "timeout", "crashed", "syntax",
    "missing", "empty"), how many tests "passed" of a "total", a "message" about the first that did
    not, and the end of what the program "printed". Where the sandbox failed, however often it was
    tried, the episode is truncated, and info["error"] says how.
    """

    metadata = {**TextEnv.metadata, "blocking": True}  # noqa: RUF012 (Gymnasium declares it so)
    _question: Problem

    def __init__(
        self,
        problems: Sequence[Problem],
        origin: Origin,
        *,
        sandbox: str | Sandbox = "auto",
        allow_unsafe: bool = False,
        partial_credit: bool = False,
        penalty: float = 0.1,
        cpu_s: float = 10.0,
        memory_mb: int = 512,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(problems, origin, render_mode)
        if penalty < 0:
            raise ConfigError(f"penalty is 0 or more, got {penalty!r}; it is taken from the reward")
        self._limits = Limits(
            cpu_s=cpu_s, wall_s=PATIENCE * cpu_s, memory_bytes=memory_mb * MEBIBYTE
        )
        self._sandbox = sandbox
        self._allow_unsafe = allow_unsafe
        self._partial_credit = partial_credit
        self._penalty = penalty

    def __deepcopy__(self, memo: dict[int, Any]) -> CodeEnv:
        # Copies run their programs in the same sandbox, which may hold processes.
        memo[id(self._sandbox)] = self._sandbox
        return super().__deepcopy__(memo)

    @property
    def _grader(self) -> Grader:
        """Raises NoSandbox, which says what to install."""
        return grader_for(self._sandbox, allow_unsafe=self._allow_unsafe)

    def _start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        # Asked for here, because no text that a player types may raise later.
        sandbox = self._grader.sandbox
        text, info = super()._start(options)
        said = {"sandbox": described(sandbox.name, sandbox.guarantees)}
        # The last info has it too, and so the records of a benchmark.
        self._about = {**self._about, **said}
        return text, {**info, **said}

    def _graded(self, code: str) -> Turn:
        """The last turn: the verdict on the program."""
        stop = not self._partial_credit
        try:
            tests = self._question.tests
            verdict = self._grader.grade(code, tests, limits=self._limits, stop=stop)
        except (SandboxError, DataError) as error:
            return self._failed(error)
        self._verdict = f"\n\n{code}\n\n{verdict.outcome}"
        info = {**self._components(verdict), **told(verdict), **self._about}
        return "", earned(info), True, False, info

    def _failed(self, error: Exception) -> Turn:
        """The turn in which nothing could be said of the program."""
        info = ending(success=False, tests=0.0, syntax=0.0, empty=0.0)
        about = {"outcome": "error", "error": f"{type(error).__name__}: {error}"}
        return "", 0.0, False, True, {**info, **about, **self._about}

    def _components(self, verdict: Verdict) -> Info:
        success = verdict.outcome == "passed"
        share = verdict.passed / max(verdict.total, 1)
        tests = share if self._partial_credit else float(success)
        return ending(
            success=success,
            tests=tests,
            syntax=-self._penalty if verdict.outcome == "syntax" else 0.0,
            empty=-self._penalty if verdict.outcome == "empty" else 0.0,
        )

    def oracle_action(self) -> str:
        """A program that passes. Raises NoOracle when no problem is open, or none is known."""
        code = super().oracle_action()
        if not code:
            raise NoOracle(f"{type(self).__name__}: no solution of this problem is known")
        return f"```python\n{code}\n```"


def told(verdict: Verdict) -> Info:
    """What the last info says of a verdict."""
    names = ("outcome", "passed", "total", "message", "printed")
    return {name: getattr(verdict, name) for name in names}


def earned(info: Info) -> float:
    """The sum of the reward's components."""
    return float(sum(value for key, value in info.items() if key.startswith("reward/")))


def described(name: str, guarantees: Guarantees) -> str:
    """A sandbox in a line: "bubblewrap: network, filesystem ..."."""
    held = [one for one in guarantees.__slots__ if getattr(guarantees, one)]
    return f"{name}: {', '.join(held) or 'no protection'}"
