"""Small programs and expressions in Monty, an interpreter of a part of Python written in Rust.

It has no files, no network, no processes and no input, and starts in a tenth of a millisecond.
It lacks most of the standard library. The package is pydantic-monty, in the extra `tools`.
"""

import asyncio
import time
from contextlib import ExitStack
from dataclasses import asdict

from pydantic_monty import CollectStreams, Monty, MontyCrashedError, MontyError, ResourceLimits

from ludic_gym.errors import ConfigError, SandboxError
from ludic_gym.sandbox.loop import hold, on_sandbox_loop
from ludic_gym.sandbox.types import (
    ALL_GUARANTEES,
    DEFAULT_LIMITS,
    Ended,
    ExecResult,
    Limits,
    Program,
    Sandbox,
    Session,
)

DEEPEST = 1000


class MontySandbox(Sandbox):
    r"""Sandbox for source text; the value of a last expression is printed, as in a notebook.

    Stdin, files, arguments, interpreters and sessions raise ConfigError. `cpu_s`, `memory_bytes`
    and `output_bytes` hold for the interpreter, `wall_s` for sleeps too; the other limits have no
    object. A fork of a process that has used it cannot: `run` raises SandboxError there.

        result = await MontySandbox().run(Program(source="import math\nmath.sqrt(2)"))
        result.stdout  # b"1.4142135623730951\n"
    """

    name = "monty"
    guarantees = ALL_GUARANTEES

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
        self, program: Program, *, stdin: bytes = b"", limits: Limits = DEFAULT_LIMITS
    ) -> ExecResult:
        """See Sandbox."""
        given = {**asdict(program), "source": "", "stdin": stdin}
        unfit = [what for what, value in given.items() if value]
        if unfit:
            raise ConfigError(f"monty has no {unfit[0]}; give such programs to another sandbox")
        return await on_sandbox_loop(self._run(program.source, limits))

    async def start(self, program: Program, *, limits: Limits = DEFAULT_LIMITS) -> Session:
        """Raise ConfigError: there are no sessions."""
        raise ConfigError("monty has no sessions; use another sandbox")

    async def _run(self, source: str, limits: Limits) -> ExecResult:
        return await asyncio.to_thread(_fed, await self._opened(), source, limits)

    async def _opened(self) -> Monty:
        """The library's pool of interpreters, made at first use. Raises SandboxError in a fork."""
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


def _fed(pool: Monty, source: str, limits: Limits) -> ExecResult:
    """The result of a source text in an interpreter of the pool, on the calling thread."""
    began = time.monotonic()
    written = CollectStreams(max_bytes=limits.output_bytes)
    # The binding rejects lone surrogates before the interpreter can report them.
    text = source.encode("utf-8", "replace").decode()
    ended: Ended = "exited"
    last = complaint = ""
    try:
        with pool.checkout(limits=_bounds(limits)) as session:
            value = session.feed_run(text, print_callback=written)
            last = "" if value is None else f"{value!r}\n"
    except MontyCrashedError as error:
        if not error.timed_out:
            what = "the sandbox 'monty' broke while a program ran in it"
            raise SandboxError(f"{what}: {error}") from error
        ended = "cpu"
    except MontyError as error:
        ended, complaint = _how(str(error), limits), f"{error}\n"
    streams = {"stdout": b"", "stderr": b""}
    for stream, part in written.output:
        streams[stream] += part.encode()
    stdout, stderr = streams["stdout"] + last.encode(), streams["stderr"] + complaint.encode()
    room = limits.output_bytes
    return ExecResult(
        stdout=stdout[:room],
        stderr=stderr[:room],
        exit_code=int(bool(complaint)) if ended in ("exited", "memory") else None,
        ended=ended,
        wall_s=time.monotonic() - began,
        stdout_cut=len(stdout) > room or ended == "output",
        stderr_cut=len(stderr) > room,
    )


def _bounds(limits: Limits) -> ResourceLimits:
    """The limits in the library's terms."""
    return ResourceLimits(
        max_feed_duration_secs=min(limits.cpu_s, limits.wall_s),
        max_total_sleep_secs=limits.wall_s,
        max_memory=limits.memory_bytes,
        max_recursion_depth=DEEPEST,
    )


def _how(message: str, limits: Limits) -> Ended:
    """The reason for an end by an error, from its message: the library has no other sign of it."""
    if message.startswith("TimeoutError: feed time limit exceeded"):
        return "cpu"
    if message.startswith("TimeoutError: sleep limit exceeded"):
        return "timeout"
    if message.startswith("MemoryError: memory limit exceeded"):
        # Output beyond its limit counts as memory, and the message shows the limit that was broken.
        return "output" if message.endswith(f"> {limits.output_bytes} bytes") else "memory"
    return "exited"


_ABANDONED: list[ExitStack] = []
