"""Grader: verdicts on programs, each computed once, with retries of broken sandboxes.

A program is a text with a function, a whole program or a query, as the kind of its tests demands:

    tests = AssertTests(name="add", tests=("assert add(1, 2) == 3",))
    grader_for("auto").grade("def add(a, b): return a + b", tests).outcome  # "passed"
"""

import asyncio
import hashlib
import json
import os
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import fields, replace
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from ludic_gym.errors import NoSandbox, SandboxError
from ludic_gym.graders.programs.plain import exact_ints
from ludic_gym.graders.programs.run import resolve_reference, run
from ludic_gym.graders.programs.types import CallTests, ProgramTests, QueryTests, Verdict
from ludic_gym.sandbox.choice import shared_sandbox
from ludic_gym.sandbox.loop import on_sandbox_loop, run_blocking
from ludic_gym.sandbox.types import Limits, Sandbox

T = TypeVar("T")
ATTEMPTS = 5
PAUSE_S = 0.05
VERDICTS = 4096
REFERENCES = 256
# A reference may take this much longer than the limits, a solution this much longer than it.
REFERENCE_FACTOR = 30
SOLUTION_FACTOR = 4
DEFAULT_LIMITS = Limits(wall_s=120.0, cpu_s=10.0)


class Memo(Generic[T]):
    """Cache of the newest `size` results; simultaneous calls with one key share a computation.

    keep: False for a result that must be computed again at the next call.
    Used on one event loop. Errors are not cached, nor results for which `keep` is False.
    """

    def __init__(self, size: int, keep: Callable[[T], bool] = lambda result: True) -> None:
        self._size = size
        self._keep = keep
        self._tasks: OrderedDict[str, asyncio.Task[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tasks)

    async def get(self, key: str, find: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The cached result for the key, or that of `find`.

        A call that is cancelled leaves the computation to the others. Raises the errors of `find`.
        """
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(find())
            self._tasks[key].add_done_callback(partial(self._found, key))
        # Also for a hit: the end of the dict has the newest use, the beginning is dropped first.
        self._tasks.move_to_end(key)
        # A call that is cancelled must not cancel the computation for the others.
        return await asyncio.shield(self._tasks[key])

    def _found(self, key: str, task: asyncio.Task[T]) -> None:
        """Drop a result that is not to be kept, and the oldest ones beyond the size."""
        if task.cancelled() or task.exception() or not self._keep(task.result()):
            self._tasks.pop(key, None)
        # Not before the end: a computation that is under way is shared, however many there are.
        while len(self._tasks) > self._size and next(iter(self._tasks.values())).done():
            self._tasks.popitem(last=False)


class Grader:
    """Grader of programs in a sandbox. Safe in threads and in any number of event loops.

    sandbox: close it yourself, unless it is a shared one. size: verdicts in the cache.
    A verdict is computed once per program, tests and limits. A timeout is not cached, because the
    machine may have been busy. A sandbox that fails is tried `ATTEMPTS` times in all.
    """

    def __init__(self, sandbox: Sandbox, *, size: int = VERDICTS) -> None:
        self.sandbox = sandbox
        self._verdicts: Memo[Verdict] = Memo(size, keep=lambda v: v.outcome != "timeout")
        self._references: Memo[tuple[CallTests | QueryTests, float]] = Memo(REFERENCES)

    def grade(
        self, code: str, tests: ProgramTests, *, limits: Limits = DEFAULT_LIMITS, stop: bool = True
    ) -> Verdict:
        """The verdict of `grade_async`, for callers that cannot await.

        It blocks the thread until then, which includes the wait for a free place in the sandbox.
        """
        return run_blocking(self.grade_async(code, tests, limits=limits, stop=stop))

    async def grade_async(
        self, code: str, tests: ProgramTests, *, limits: Limits = DEFAULT_LIMITS, stop: bool = True
    ) -> Verdict:
        """The verdict on the program.

        code: the program, without a fence; see `blocks.program_in`. tests: one of the four kinds.
        limits: of each process. Tests with a reference allow at least four times its seconds.
        stop: do not run further tests after the first failure.
        Raises SandboxError if all attempts failed, NoSandbox where no sandbox works, and DataError
        for tests that cannot be run.
        """
        if not code.strip():
            return Verdict(outcome="empty", passed=0, total=0, message="there is no program")
        return await on_sandbox_loop(self._graded(code, tests, limits, stop))

    async def _graded(self, code: str, tests: ProgramTests, limits: Limits, stop: bool) -> Verdict:
        """The cached verdict; the results of a reference are computed once for all programs."""
        if isinstance(tests, CallTests | QueryTests) and tests.reference:
            # A slow but correct reference of the data set must not fail by a limit for solutions.
            generous = limits_with_cpu(limits, REFERENCE_FACTOR * limits.cpu_s)
            key = key_of(self.sandbox.name, "", tests, generous, False)
            resolve = partial(resolve_reference, self.sandbox, tests, generous)
            tests, seconds = await self._references.get(key, partial(retry_sandbox, resolve))
            limits = limits_with_cpu(limits, SOLUTION_FACTOR * seconds)
        key = key_of(self.sandbox.name, code, tests, limits, stop)
        find = partial(run, self.sandbox, code, tests, limits, stop)
        return await self._verdicts.get(key, partial(retry_sandbox, find))


async def retry_sandbox(find: Callable[[], Awaitable[T]]) -> T:
    """The result of `find`, retried while the sandbox fails. Raises the last SandboxError.

    `ATTEMPTS` calls at most, with a pause after each that doubles from `PAUSE_S`. A missing sandbox
    will not appear by waiting, so NoSandbox is raised at once.
    """
    for attempt in range(ATTEMPTS - 1):
        try:
            return await find()
        except NoSandbox:
            raise
        except SandboxError:
            await asyncio.sleep(PAUSE_S * 2**attempt)
    return await find()


def limits_with_cpu(limits: Limits, cpu_s: float) -> Limits:
    """The limits with at least that much CPU time, and wall time in proportion.

    >>> limits_with_cpu(Limits(cpu_s=10.0, wall_s=40.0), cpu_s=20.0).wall_s
    80.0
    """
    # Wall time grows with CPU time, or it would become the limit.
    factor = max(1.0, cpu_s / limits.cpu_s)
    return replace(limits, cpu_s=limits.cpu_s * factor, wall_s=limits.wall_s * factor)


def key_of(sandbox: str, code: str, tests: ProgramTests, limits: Limits, stop: bool) -> str:
    """A hash of all that a verdict depends on, the version of Python included; 64 digits."""
    parts_of_tests = {field.name: getattr(tests, field.name) for field in fields(tests)}
    bounds = [getattr(limits, field.name) for field in fields(limits)]
    parts = [sandbox, sys.version, code, type(tests).__name__, parts_of_tests, bounds, stop]
    return hashlib.sha256(json.dumps(exact_ints(parts)).encode()).hexdigest()


_shared: dict[str, Grader] = {}
_of_sandboxes: WeakKeyDictionary[Sandbox, Grader] = WeakKeyDictionary()


def grader_for(sandbox: str | Sandbox, *, allow_unsafe: bool = False) -> Grader:
    """The grader that this whole process shares for that sandbox, or the sandbox of that name.

    sandbox, allow_unsafe: as in `open_sandbox`. Equal arguments give one grader, whose cache serves
    every environment of the process.
    Raises NoSandbox with the packages to install, and ConfigError for other names.
    """
    if not isinstance(sandbox, str):
        return _of_sandboxes.setdefault(sandbox, Grader(sandbox))
    shared = shared_sandbox(sandbox, allow_unsafe=allow_unsafe)
    return _shared.setdefault(shared.name, Grader(shared))


def _forget() -> None:
    # The graders' tasks belong to an event loop that only the parent has.
    _shared.clear()
    _of_sandboxes.clear()


os.register_at_fork(after_in_child=_forget)
