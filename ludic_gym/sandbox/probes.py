"""Programs that test a sandbox's guarantees from the inside, against witnesses on the host.

They work on every `Sandbox`, also on your own: `await measured(sandbox)`. Each program gets the
arguments FOLDER, PORT, PID and NAME of a `Witness`. The sources of a guarantee are named by the way
in which they attack it.
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

HEAD = """
import contextlib, ctypes, os, sys, time
FOLDER, PORT, PID, NAME = sys.argv[1:]
trying = contextlib.suppress(Exception)
MIB = bytes(1 << 20)
kept = []
def held(mebibytes): os.write(1, b"held %d\\n" % mebibytes)
def crowd(hold):
    # A dozen processes hold it, until all of them do or have failed.
    come, go = os.pipe()
    count = 0
    with trying:
        while count < 12:
            if os.fork() == 0:
                with trying: hold()
                os.write(go, b"x")
                time.sleep(600)
            count += 1
    for _ in range(count): os.read(come, 1)
    os._exit(0)
"""

NETWORK = {
    "connections": """
import socket
with trying: s = socket.create_connection(("127.0.0.1", int(PORT)), 5)
with trying: s = socket.socket(2, 2); s.connect(("192.0.2.1", 9)); print("found a route")
print("tried")
"""
}

FILESYSTEM = {
    "files": """
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
}

# Children inherit the name, by which processes that outlive the program are found.
PROCESSES = {
    "processes": """
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
}

# Each tries to hold 384 MiB or more.
MEMORY: Mapping[str, str] = {
    "private memory": """
def hold(): kept.append(b"x" * (32 << 20)); held(32)
crowd(hold)
""",
    "shared anonymous memory": """
import mmap
def hold():
    kept.append(mmap.mmap(-1, 32 << 20))
    for _ in range(32): kept[-1].write(MIB); held(1)
crowd(hold)
""",
    "files in memory": """
for folder in (".", "/tmp", "/dev/shm", "/run", "/dev"):
    for i in range(128):
        name = f"{folder}/{NAME}{len(folder)}-{i}"
        with trying, open(name, "wb", 0) as file: held(file.write(MIB) >> 20)
""",
}

CPU: Mapping[str, str] = {
    "a loop": "while True: pass",
    "sleep": "time.sleep(600)",
}

DISK = {
    "files": """
total = 0
for where in (".", "/tmp", "/dev/shm", "/var/tmp", FOLDER):
    for i in range(64):
        name = f"{where}/{NAME}{len(where)}-{i}"
        with trying, open(name, "wb", 0) as file: total += file.write(bytes(1 << 20))
print("wrote", total)
"""
}


WALL_S = 60.0
CPU_S = 1.0
MEMORY_BYTES, DISK_BYTES = 128 * MEBIBYTE, 16 * MEBIBYTE
LIMITS = Limits(
    wall_s=WALL_S, cpu_s=WALL_S, memory_bytes=MEMORY_BYTES, processes=24, disk_bytes=DISK_BYTES
)
GRACE_S = 10.0
# Of the host, where the next program writes if nothing hinders it.
OUTSIDE = ("/tmp", "/dev/shm", "/var/tmp", "/run", "/dev")


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


async def find_breaches(sandbox: Sandbox) -> dict[str, str]:
    """For each guarantee of the sandbox, a description of its breach, "" if it holds.

    Takes about half a minute, of which a third is CPU time. Raises SandboxError if the sandbox does
    not work at all.

        breaches = await find_breaches(open_sandbox())
        assert not any(breaches.values()), breaches
    """
    promised = [name for name, kept in asdict(sandbox.guarantees).items() if kept]
    with witnesses() as witness:
        return {name: await _broken(sandbox, name, witness) for name in promised}


async def _broken(sandbox: Sandbox, guarantee: str, witness: Witness) -> str:
    """Description of the breach of one guarantee, "" if each of its programs fails as it should."""
    sources, verdict, limits = PROBES[guarantee]
    for way, source in sources.items():
        program = Program(source=HEAD + source, arguments=witness.arguments)
        try:
            result = await sandbox.run(program, limits=limits)
        except SandboxError as error:
            return f"the sandbox failed: {error} ({way})"
        if breach := verdict(result, witness):
            return f"{breach} ({way})"
    return ""


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
            for pid in pids_named(name):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # Of a sandbox that let the program write to the host.
            for where in OUTSIDE:
                for path in Path(where).glob(f"{name}*"):
                    path.unlink(missing_ok=True)


def pids_named(name: str) -> list[int]:
    """Ids of this machine's processes with that name; none where there is no /proc."""
    pids: list[int] = []
    with suppress(FileNotFoundError):
        # Not Path.glob, which raises an error for a process that ends meanwhile.
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                    pids.append(int(pid))
    return pids


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
    while pids_named(witness.name) and time.monotonic() < deadline:
        time.sleep(0.05)
    return "a program left processes behind" if pids_named(witness.name) else ""


def memory_verdict(result: ExecResult, witness: Witness) -> str:
    """Description of memory beyond the limit, "" for none.

    The program adds up the MiB that it holds, in as many processes as it may have.
    """
    size = sum(int(line.split()[1]) for line in result.stdout.splitlines() if b"held" in line)
    # Twice, because memory may be measured ten times a second, not at each allocation.
    if size > 2 * MEMORY_BYTES >> 20:
        return f"a program of {MEMORY_BYTES >> 20} MiB got {size} MiB"
    return ""


def cpu_verdict(result: ExecResult, witness: Witness) -> str:
    """Description of a program that outlives its CPU time or its time of waiting, "" for none."""
    if result.ended == "exited":
        return _odd(result)
    if result.wall_s > WALL_S / 2:
        return f"a program of {CPU_S:g} s of CPU time ended after {result.wall_s:.0f} s"
    return ""


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
PROBES: Mapping[str, tuple[Mapping[str, str], Verdict, Limits]] = {
    "network": (NETWORK, network_verdict, LIMITS),
    "filesystem": (FILESYSTEM, filesystem_verdict, LIMITS),
    "processes": (PROCESSES, processes_verdict, LIMITS),
    "memory": (MEMORY, memory_verdict, replace(LIMITS, disk_bytes=2**30)),
    "cpu": (CPU, cpu_verdict, replace(LIMITS, cpu_s=CPU_S)),
    "disk": (DISK, disk_verdict, LIMITS),
}
