"""Small programs and expressions in Monty, an interpreter of a part of Python written in Rust.

It has no files, no network, no processes and no input, and starts in a tenth of a millisecond.
It lacks most of the standard library. The package is pydantic-monty, in the extra `tools`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from pydantic_monty import CollectStreams, Monty, MontyCrashedError, MontyError, ResourceLimits

from ludic_gym.errors import ConfigError, SandboxError
from ludic_gym.sandbox.loop import hold, on_sandbox_loop
from ludic_gym.sandbox.types import (
    DEFAULT_LIMITS,
    NO_FILES,
    Ended,
    ExecResult,
    Guarantees,
    Limits,
    Program,
    Sandbox,
    Session,
)

DEEPEST = 1000


class MontySandbox(Sandbox):
    """Sandbox for source text; the value of a last expression is printed, as in a notebook.

    Stdin, files, arguments, interpreters and sessions raise ConfigError. `cpu_s`, `memory_bytes`
    and `output_bytes` hold for the interpreter, `wall_s` for sleeps too.
    """

    name = "monty"
    guarantees = Guarantees(
        network=True, filesystem=True, processes=True, memory=True, cpu=True, disk=True
    )

    def __init__(self) -> None:
        self._begin()
        hold(self)

    def _begin(self) -> None:
        self._pool: Monty | None = None
        self._stack = ExitStack()
        self._lock = asyncio.Lock()

    def renew(self) -> None:
        """Refuse programs in a fork: the library crashes in forks of a process that used it."""
        if self._pool:
            _ABANDONED.append(self._stack)
        self._begin()

    async def run(
        self,
        program: Program,
        *,
        stdin: bytes = b"",
        files: Mapping[str, bytes] = NO_FILES,
        limits: Limits = DEFAULT_LIMITS,
    ) -> ExecResult:
        """See Sandbox."""
        for what, given in (
            ("stdin", stdin),
            ("files", files),
            ("arguments", program.arguments),
            ("interpreter", program.interpreter),
        ):
            if given:
                raise ConfigError(f"monty has no {what}; give such programs to another sandbox")
        return await on_sandbox_loop(self._run(program.source, limits))

    async def start(
        self,
        program: Program,
        *,
        files: Mapping[str, bytes] = NO_FILES,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Session:
        """Raise ConfigError: there are no sessions."""
        raise ConfigError("monty has no sessions; use another sandbox")

    async def _run(self, source: str, limits: Limits) -> ExecResult:
        pool = await self._opened()
        written = CollectStreams(max_bytes=limits.output_bytes)
        began = time.monotonic()
        end = await asyncio.to_thread(_fed, pool, source, limits, written)
        return _result(end, written, limits, time.monotonic() - began)

    async def _opened(self) -> Monty:
        if _ABANDONED:
            raise SandboxError("monty cannot be used in a fork of a process that has used it")
        async with self._lock:
            if self._pool is None:
                self._pool = await asyncio.to_thread(self._stack.enter_context, Monty())
            return self._pool

    async def _close(self) -> None:
        # Not in a thread: none can be started while the interpreter shuts down.
        self._stack.close()

    async def close(self) -> None:
        """See Sandbox."""
        await on_sandbox_loop(self._close())


@dataclass(frozen=True, slots=True)
class _End:
    """Reason for a program's end, its last value as text, and its error message."""

    ended: Ended
    value: str = ""
    complaint: str = ""


def _fed(pool: Monty, source: str, limits: Limits, written: CollectStreams) -> _End:
    bounds = ResourceLimits(
        max_feed_duration_secs=min(limits.cpu_s, limits.wall_s),
        max_total_sleep_secs=limits.wall_s,
        max_memory=limits.memory_bytes,
        max_recursion_depth=DEEPEST,
    )
    # The binding rejects lone surrogates before the interpreter can report them.
    text = source.encode("utf-8", "replace").decode()
    try:
        with pool.checkout(limits=bounds) as session:
            value = session.feed_run(text, print_callback=written)
    except MontyCrashedError as error:
        if error.timed_out:
            return _End("cpu")
        raise SandboxError(
            f"the sandbox 'monty' broke while a program ran in it: {error}"
        ) from error
    except MontyError as error:
        return _End(_how(str(error), limits), complaint=f"{error}\n")
    return _End("exited", value="" if value is None else f"{value!r}\n")


def _how(message: str, limits: Limits) -> Ended:
    if message.startswith("TimeoutError: feed time limit exceeded"):
        return "cpu"
    if message.startswith("TimeoutError: sleep limit exceeded"):
        return "timeout"
    if message.startswith("MemoryError: memory limit exceeded"):
        # Output beyond its limit counts as memory, and the message shows the limit that was broken.
        return "output" if message.endswith(f"> {limits.output_bytes} bytes") else "memory"
    return "exited"


def _result(end: _End, written: CollectStreams, limits: Limits, wall_s: float) -> ExecResult:
    streams = {"stdout": b"", "stderr": b""}
    for stream, text in written.output:
        streams[stream] += text.encode()
    stdout = streams["stdout"] + end.value.encode()
    stderr = streams["stderr"] + end.complaint.encode()
    room = limits.output_bytes
    failed = end.complaint or end.ended != "exited"
    return ExecResult(
        stdout=stdout[:room],
        stderr=stderr[:room],
        exit_code=None if end.ended not in ("exited", "memory") else int(bool(failed)),
        ended=end.ended,
        wall_s=wall_s,
        stdout_cut=len(stdout) > room or end.ended == "output",
        stderr_cut=len(stderr) > room,
    )


_ABANDONED: list[ExitStack] = []
