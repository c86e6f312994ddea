"""Programs and limits for a sandbox, results from it, and the guarantees it makes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, Protocol

from ludic_gym.errors import ConfigError

MEBIBYTE = 2**20
"""Bytes of a mebibyte."""

Ended = Literal["exited", "signal", "timeout", "cpu", "memory", "output", "killed"]
"""Reason for the end of a program: it exited, or it was ended by a signal, the wall clock or its
idle time ("timeout"), its CPU time, a lack of memory (an uncaught MemoryError, or too much in all
its processes), too much output, or `Session.kill`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one program, in seconds and bytes.

    wall_s: from the start of the program. Waiting for a free place does not count. It is generous,
        because a busy machine gives a program little CPU time per second.
    cpu_s: of each process, rounded up to whole seconds. A program may be idle for 2 s more than
        this in all while its caller waits for it: no process of it runs or waits for a CPU.
    memory_bytes: of the address space of each process, and of all that the processes and their
        files hold in memory. The kernel enforces the second in a memory group; where none can be
        made, it is measured ten times a second.
    processes: at the same time, threads included.
    disk_bytes: of all files together. output_bytes: of stdout and stderr each.
    Raises ConfigError for a limit that is not positive.

    >>> Limits(wall_s=2.0, cpu_s=0)
    Traceback (most recent call last):
    ...
    ludic_gym.errors.ConfigError: Limits(cpu_s=0) must be more than 0
    """

    wall_s: float = 120.0
    cpu_s: float = 8.0
    memory_bytes: int = 512 * MEBIBYTE
    processes: int = 32
    disk_bytes: int = 64 * MEBIBYTE
    output_bytes: int = MEBIBYTE

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            # Not `value <= 0`, which is False for nan.
            if not value > 0:
                raise ConfigError(f"Limits({name}={value!r}) must be more than 0")


DEFAULT_LIMITS = Limits()
"""Limits of a program unless others are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """Guarantees of a sandbox, which hold for any program.

    network: the program reaches nothing, not even the host's loopback.
    filesystem: it reads only the interpreter and the system's programs, and changes no file of the
        host.
    processes: it sees and signals only its own, which are bounded in number and end with it.
    memory, cpu, disk: bounded.
    """

    network: bool
    filesystem: bool
    processes: bool
    memory: bool
    cpu: bool
    disk: bool


ALL_GUARANTEES = Guarantees(
    network=True, filesystem=True, processes=True, memory=True, cpu=True, disk=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Source text, run by the sandbox's own Python unless an `interpreter` is named.

    arguments: sys.argv[1:].
    interpreter: a command inside the sandbox, such as ("/bin/sh",); the name of the file with the
        source is its argument. The text need not be valid: an interpreter's complaint about it is
        part of the result.
    files: contents by relative name, written to the program's working directory.
    """

    source: str
    arguments: tuple[str, ...] = ()
    interpreter: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """Output of a program, and the reason for its end.

    stdout, stderr: the first `Limits.output_bytes` of each.
    stdout_cut, stderr_cut: True if there was more.
    exit_code: 128 + n where signal n ended it, as shells count; None where the sandbox ended it.
    ended: "exited" also for an exit code other than 0.
    wall_s: seconds from the start of the program.
    """

    stdout: bytes
    stderr: bytes
    exit_code: int | None
    ended: Ended
    wall_s: float
    stdout_cut: bool = False
    stderr_cut: bool = False


class Session(Protocol):
    r"""A running program in a sandbox of its own, with input and output line by line.

    Nothing that the program does raises an error. Once it has ended, `send` has no effect and
    `receive_line` returns None. SandboxError means that the sandbox failed, not the program.

        session = await sandbox.start(Program(source="print(int(input()) ** 2)"))
        await session.send(b"12\n")
        line = await session.receive_line(timeout_s=5.0)  # b"144"
        result = await session.finish()
    """

    async def send(self, data: bytes) -> None:
        """Write to its stdin; return when the program or its pipe has taken all of it."""

    async def receive_line(self, timeout_s: float | None = None) -> bytes | None:
        """The next line of its stdout without the line break; None if there will be none.

        A program that writes no whole line within `timeout_s` is ended (`ended="timeout"`), so that
        None is final. Text after its last line break is in the result only.
        """

    async def finish(self) -> ExecResult:
        """Close its stdin, wait until it ends, and return all that it wrote."""

    async def kill(self) -> ExecResult:
        """End it now unless it has ended by itself, and return all that it wrote."""


class Sandbox(Protocol):
    """Runner of untrusted programs; every program gets a fresh sandbox, used once.

    Safe in threads and in any number of event loops. A failure of the infrastructure raises
    SandboxError; a failure of the program is a result.
    """

    @property
    def name(self) -> str:
        """Its name for `open_sandbox`."""

    @property
    def guarantees(self) -> Guarantees:
        """Its guarantees."""

    async def run(
        self, program: Program, *, stdin: bytes = b"", limits: Limits = DEFAULT_LIMITS
    ) -> ExecResult:
        """Run the program with that stdin to its end.

        A program waits for a free place first. If the caller is cancelled, the program is killed.
        Raises SandboxError if the sandbox fails, and ConfigError for a program that it cannot take.
        """

    async def start(self, program: Program, *, limits: Limits = DEFAULT_LIMITS) -> Session:
        """Start the program; end it with `finish` or `kill`, or it runs up to its limits.

        Raises the errors of `run`.
        """

    async def close(self) -> None:
        """End all its processes. It cannot be used afterwards."""
