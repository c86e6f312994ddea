"""Programs that test a sandbox's guarantees from the inside, against witnesses on the host.

They work on every `Sandbox`, also on your own: `await measured(sandbox)`.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ludic_gym.errors import SandboxError
from ludic_gym.sandbox.types import MEBIBYTE, ExecResult, Limits, Program, Sandbox

WALL_S = 60.0
MEMORY_BYTES, DISK_BYTES = 256 * MEBIBYTE, 16 * MEBIBYTE
LIMITS = Limits(
    wall_s=WALL_S, cpu_s=WALL_S, memory_bytes=MEMORY_BYTES, processes=24, disk_bytes=DISK_BYTES
)
GRACE_S = 10.0
SHARE_BYTES = 64 * MEBIBYTE


@dataclass(frozen=True, slots=True)
class Witness:
    """Resources of the host that a program tries to reach, as its arguments name them.

    secret: content of a file in `folder`, a random text that proves it was read.
    listener: on the host's loopback, never accepted by itself. process: one to be signalled.
    name: for the program's processes, to find those that outlive it.
    """

    secret: str
    folder: Path
    listener: socket.socket
    process: subprocess.Popen[bytes]
    name: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """FOLDER, PORT, PID, NAME, as `HEAD` reads them."""
        port: int = self.listener.getsockname()[1]
        return (str(self.folder), str(port), str(self.process.pid), self.name)


HEAD = """
import contextlib, os, sys, time
FOLDER, PORT, PID, NAME = sys.argv[1:]
trying = contextlib.suppress(Exception)
"""
NETWORK = """
import socket
with trying: s = socket.create_connection(("127.0.0.1", int(PORT)), 5)
with trying: s = socket.socket(2, 2); s.connect(("192.0.2.1", 9)); print("found a route")
print("tried")
"""
FILESYSTEM = """
with trying: print(open(FOLDER + "/secret").read())
with trying: print(os.environ)
with trying: print(open("/etc/passwd").read())
for pid in (PID, str(os.getppid())):
    with trying: print(open(f"/proc/{pid}/environ").read())
with trying: open(FOLDER + "/planted", "w").close()
with trying: os.chmod(FOLDER, 0o700)
with trying: os.remove(FOLDER + "/secret")
print("tried")
"""
# Children inherit the name, by which processes that outlive the program are found.
PROCESSES = """
import ctypes
ctypes.CDLL(None).prctl(15, NAME.encode())
with trying: os.kill(int(PID), 9)
count = 0
with trying:
    for _ in range(200):
        if os.fork() == 0:
            os.setsid()
            for fd in range(3): os.close(fd)
            time.sleep(30)
        count += 1
print("forks", count, flush=True)
os._exit(0)
"""
MEMORY = """
for _ in range(16):
    if os.fork() == 0:
        mine = b"x" * (64 << 20)
        print("got", flush=True); time.sleep(600)
time.sleep(600)
"""
CPU = "while True: pass"
# Of the host, where the next program writes if nothing hinders it.
OUTSIDE = ("/tmp", "/dev/shm", "/var/tmp")
DISK = """
total = 0
for where in (".", "/tmp", "/dev/shm", "/var/tmp", FOLDER):
    for i in range(64):
        name = f"{where}/{NAME}{len(where)}-{i}"
        with trying, open(name, "wb", 0) as file: total += file.write(bytes(1 << 20))
print("wrote", total)
"""


async def measured(sandbox: Sandbox) -> dict[str, str]:
    """For each guarantee of the sandbox, a description of its breach, "" if it holds.

    Takes a few seconds of CPU time. Raises SandboxError if the sandbox does not work at all.

        breaches = await measured(open_sandbox("bubblewrap"))
        assert not any(breaches.values()), breaches
    """
    promised = [name for name, kept in asdict(sandbox.guarantees).items() if kept]
    with witnesses() as witness:
        return {name: await _broken(sandbox, name, witness) for name in promised}


async def _broken(sandbox: Sandbox, guarantee: str, witness: Witness) -> str:
    """Description of the breach of one guarantee, "" if its program fails as it should."""
    source, verdict, limits = PROBES[guarantee]
    program = Program(source=HEAD + source, arguments=witness.arguments)
    try:
        result = await sandbox.run(program, limits=limits)
    except SandboxError as error:
        return f"the sandbox failed: {error}"
    return verdict(result, witness)


@contextmanager
def witnesses() -> Iterator[Witness]:
    """A listener, a file and a process that no program may reach; they end with the block."""
    # Not below /tmp: a sandbox may hide the host's /tmp and protect nothing else.
    parent = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None
    waiting = [sys.executable, "-c", "import time; time.sleep(600)"]
    name = f"probe{secrets.randbelow(10**9)}"
    with (
        tempfile.TemporaryDirectory(dir=parent) as folder,
        socket.create_server(("127.0.0.1", 0)) as listener,
        subprocess.Popen(waiting) as process,
    ):
        listener.setblocking(False)
        witness = Witness(secrets.token_hex(), Path(folder), listener, process, name)
        witness.folder.chmod(0o777)
        (witness.folder / "secret").write_text(witness.secret)
        try:
            yield witness
        finally:
            process.kill()
            for pid in named(name):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # Of a sandbox that let the program write to the host.
            for where in OUTSIDE:
                for path in Path(where).glob(f"{name}*"):
                    path.unlink(missing_ok=True)


def named(name: str) -> list[int]:
    """Ids of this machine's processes with that name; none where there is no /proc."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            if path.read_text().strip() == name:
                found.append(int(path.parent.name))
    return found


def network_verdict(result: ExecResult, witness: Witness) -> str:
    """Description of a connection that a program made, "" for none.

    The program connects to a listener on the host's loopback, and looks for a route to an address
    that is reserved for documentation (RFC 5737).
    """
    try:
        witness.listener.accept()[0].close()
    except BlockingIOError:
        return "" if result.stdout == b"tried\n" else _odd(result)
    return "a program reached the host's loopback"


def filesystem_verdict(result: ExecResult, witness: Witness) -> str:
    """Description of a file that a program read or changed, "" for none.

    The program reads a secret, /etc/passwd and the environments of other processes, and writes to,
    removes and changes the mode of what it finds.
    """
    passwords = Path("/etc/passwd").read_bytes().partition(b"\n")[0]
    if witness.secret.encode() in result.stdout or passwords in result.stdout:
        return "a program read a file of the host"
    if [path.name for path in witness.folder.iterdir()] != ["secret"]:
        return "a program wrote to a folder of the host"
    if witness.folder.stat().st_mode & 0o777 != 0o777:
        return "a program changed a mode on the host"
    return "" if result.stdout.endswith(b"tried\n") else _odd(result)


def processes_verdict(result: ExecResult, witness: Witness) -> str:
    """Description of processes that a program ended or left behind, "" for none.

    The program sends SIGKILL to a process of the host, and makes 200 of its own, each in a session
    of its own and without pipes, by which they would outlive a simple kill.
    """
    if witness.process.poll() is not None:
        return "a program ended a process of the host"
    if not result.stdout.startswith(b"forks "):
        return _odd(result)
    count = int(result.stdout.split()[1])
    if count > LIMITS.processes:
        return f"a program of {LIMITS.processes} processes made {count} more"
    deadline = time.monotonic() + GRACE_S
    while named(witness.name) and time.monotonic() < deadline:
        time.sleep(0.05)
    return "a program left processes behind" if named(witness.name) else ""


def memory_verdict(result: ExecResult, witness: Witness) -> str:
    """Description of memory beyond the limit, "" if the program was stopped in time.

    Sixteen processes take 64 MiB each, none of which exceeds the limit alone.
    """
    size = result.stdout.count(b"got") * SHARE_BYTES
    # Twice, because memory is measured ten times a second, not at each allocation.
    if size > 2 * MEMORY_BYTES:
        return f"a program of {MEMORY_BYTES >> 20} MiB got {size >> 20} MiB"
    return "" if result.ended != "timeout" else "a program was not stopped"


def cpu_verdict(result: ExecResult, witness: Witness) -> str:
    """Description of a loop's end other than by its CPU time, "" for that end."""
    return "" if result.ended in ("cpu", "signal") else f"a loop ended by {result.ended}"


def disk_verdict(result: ExecResult, witness: Witness) -> str:
    """Description of files beyond the limit, "" for none.

    The program writes 64 files of 1 MiB in each of five folders, counted as far as it succeeds.
    """
    if not result.stdout.startswith(b"wrote "):
        return _odd(result)
    size = int(result.stdout.split()[1])
    if size > DISK_BYTES:
        return f"a program of {DISK_BYTES >> 20} MiB of files wrote {size >> 20} MiB"
    return ""


def _odd(result: ExecResult) -> str:
    """Description of a test program that did not run to its end."""
    last = result.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return f"the test itself did not run: {result.ended}, {result.exit_code}, {last}"


Verdict = Callable[[ExecResult, Witness], str]
PROBES: Mapping[str, tuple[str, Verdict, Limits]] = {
    "network": (NETWORK, network_verdict, LIMITS),
    "filesystem": (FILESYSTEM, filesystem_verdict, LIMITS),
    "processes": (PROCESSES, processes_verdict, LIMITS),
    "memory": (MEMORY, memory_verdict, replace(LIMITS, wall_s=20.0)),
    "cpu": (CPU, cpu_verdict, replace(LIMITS, cpu_s=1.0)),
    "disk": (DISK, disk_verdict, LIMITS),
}
