"""What goes into a sandbox, what comes out, and what a sandbox promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Protocol

from ludic_gym.errors import ConfigError

MEBIBYTE = 2**20
NO_FILES: Mapping[str, bytes] = MappingProxyType({})

Ended = Literal["exited", "signal", "timeout", "cpu", "memory", "output", "killed"]
"""How a program ended: by itself, by a signal, by the wall clock, by its CPU time, for want of
memory (an uncaught MemoryError, or too much in all its processes), by writing too much, or by
`Session.kill`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program may use; seconds and bytes.

    `cpu_s` (rounded up to whole seconds) holds for each of its `processes`; `memory_bytes` bounds
    the address space of each, and, ten times a second, what all of them hold. `disk_bytes` bounds
    all files together, `output_bytes` stdout and stderr each.
    Raises ConfigError for a limit that is not positive.
    """

    wall_s: float = 10.0
    cpu_s: float = 8.0
    memory_bytes: int = 512 * MEBIBYTE
    processes: int = 32
    disk_bytes: int = 64 * MEBIBYTE
    output_bytes: int = MEBIBYTE

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not value > 0:
                raise ConfigError(f"Limits({name}={value!r}) must be more than 0")


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """What a sandbox keeps a program from, whatever the program does.

    network: it reaches nothing, not even the host's loopback. filesystem: it reads nothing of
    the host but the interpreter and the system's programs, and changes nothing. processes: it
    sees and signals none but its own, which are bounded and end with it. memory, cpu, disk:
    bounded.
    """

    network: bool
    filesystem: bool
    processes: bool
    memory: bool
    cpu: bool
    disk: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Source text, run by the sandbox's own Python unless `interpreter` says by what.

    interpreter: a command inside the sandbox, such as ("/bin/sh",); it is given the name of the
    file with the source. arguments: sys.argv[1:]. The text need not be valid; what an
    interpreter says about it is the program's result.
    """

    source: str
    arguments: tuple[str, ...] = ()
    interpreter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """What a program wrote, and how it ended.

    exit_code: 128 + n where signal n ended it, as shells count; None where the sandbox ended it.
    stdout, stderr: the first `Limits.output_bytes` of each; `stdout_cut`, `stderr_cut`: whether
    there was more. wall_s: from the moment the program began.
    """

    stdout: bytes
    stderr: bytes
    exit_code: int | None
    ended: Ended
    wall_s: float
    stdout_cut: bool = False
    stderr_cut: bool = False


class Session(Protocol):
    """A program that runs in a sandbox of its own and is talked to line by line.

    Nothing that the program does raises; once it has gone, `send` has no effect and
    `receive_line` gives None. SandboxError says that the sandbox failed, not the program.
    """

    async def send(self, data: bytes) -> None:
        """Write to its stdin; returns when the program (or its pipe) has taken all of it."""

    async def receive_line(self, timeout_s: float | None = None) -> bytes | None:
        """The next line of its stdout without the line break; None if none will ever come.

        A program that writes no whole line within `timeout_s` is ended (`ended="timeout"`), so
        that None is final; what it wrote after its last line break is in the result alone.
        """

    async def finish(self) -> ExecResult:
        """Close its stdin, wait until it ends, and give all that it wrote."""

    async def kill(self) -> ExecResult:
        """End it now, if it has not ended by itself, and give all that it wrote."""


class Sandbox(Protocol):
    """Runs programs that nobody trusts; every program gets a sandbox of its own, used once.

    Safe in threads and in any number of event loops. `files` are relative names and their
    contents, laid into the program's working directory. Infrastructure that fails raises
    SandboxError; what a program does to itself is a result.
    """

    @property
    def name(self) -> str:
        """What `open_sandbox` calls it."""

    @property
    def guarantees(self) -> Guarantees:
        """What it promises; `ludic sandbox doctor` tests it."""

    async def run(
        self,
        program: Program,
        *,
        stdin: bytes = b"",
        files: Mapping[str, bytes] = NO_FILES,
        limits: Limits = DEFAULT_LIMITS,
    ) -> ExecResult:
        """What the program did with that stdin."""

    async def start(
        self,
        program: Program,
        *,
        files: Mapping[str, bytes] = NO_FILES,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Session:
        """The program, running; end it with `finish` or `kill`."""

    async def close(self) -> None:
        """End everything that it keeps warm. It can be used no more."""
