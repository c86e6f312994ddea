"""No program of the corpus harms the host, hangs, or leaves anything to the next one."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from cheats import CHEATS

from ludic_gym.sandbox.choice import open_sandbox, why_not
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.sandbox.types import MEBIBYTE, Limits, Program

PASSWORDS = Path("/etc/passwd").read_bytes().splitlines()[0]
SECRET = b"what nobody may tell"
# Endless ones do their harm at once; the others have the time to do all of it.
ENDLESS = {
    *("fork bomb", "thread bomb", "stop everything"),
    *("loop", "a hard expression", "a large number"),
    *("sleep", "sleep in silence", "wait for a pipe", "stop itself", "stop its family"),
    *("a dot now and then", "a relay of children"),
}
LIMITS = Limits(
    wall_s=2.0,
    cpu_s=0.5,
    memory_bytes=256 * MEBIBYTE,
    processes=12,
    disk_bytes=8 * MEBIBYTE,
    output_bytes=MEBIBYTE,
)
# The kernel passes the name on to every child.
MARKED = "import ctypes; ctypes.CDLL(None).prctl(15, b'{}')\n"
ENDLESS_LIMITS = replace(LIMITS, wall_s=0.5)
INNOCENT = Program(source="import json, os, re; print(json.dumps([os.listdir(), hash('a')]))")
PATIENT = Limits(wall_s=120.0)


class Host:
    """Things that no program may touch: a file, two listeners, a process, a folder, a variable."""

    def __init__(self, folder):
        self.folder = folder
        folder.chmod(0o777)
        self.secret = folder / "secret"
        self.secret.write_bytes(SECRET)
        self.victim = subprocess.Popen(["sleep", "999"])
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0ludic-{self.port}")
        self.listeners = [self.tcp, self.abstract]
        for listener in self.listeners:
            listener.listen()
            listener.setblocking(False)

    @property
    def port(self):
        return self.tcp.getsockname()[1]

    @property
    def arguments(self):
        return (str(self.secret), str(self.port), str(self.victim.pid), str(self.folder))

    def visitors(self):
        """Number of connections since the last call."""
        count = 0
        for listener in self.listeners:
            with suppress(BlockingIOError):
                listener.accept()[0].close()
                count += 1
        return count

    def close(self):
        self.victim.kill()
        self.victim.wait()
        for listener in self.listeners:
            listener.close()


@pytest.fixture
def host(monkeypatch):
    monkeypatch.setenv("LUDIC_SECRET", SECRET.decode())
    # Not below /tmp, which a sandbox may have for itself without any other protection.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        host = Host(Path(folder))
        yield host
        host.close()


def alive(mark):
    """Processes of that name, zombies aside."""
    found = []
    for path in [Path(f"/proc/{name}/stat") for name in os.listdir("/proc") if name.isdigit()]:
        try:
            text = path.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        name, state = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2]
        if name == mark and state != "Z":
            found.append(path)
    return found


def settled(condition, seconds=60):
    """True if it becomes true; processes take a moment to end."""
    deadline = time.monotonic() + seconds
    # Asked once each time: a look at processes that are ending may miss one and see it at the next.
    while not (ended := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return ended


@pytest.fixture(scope="session")
def untouched():
    """The result of an innocent program in a sandbox that has run nothing before it."""
    if reason := why_not():
        pytest.skip(f"no sandbox works here: {reason}")
    sandbox = open_sandbox("native", warm=0)
    result = run_blocking(sandbox.run(INNOCENT, limits=PATIENT))
    run_blocking(sandbox.close())
    assert result.exit_code == 0
    return result


@pytest.mark.long
@pytest.mark.parametrize("name", CHEATS)
async def test_a_cheat_harms_nobody(name, safe_sandbox, untouched, host):
    mark = f"cheat{os.getpid()}"[:15]
    source = MARKED.format(mark) + CHEATS[name]
    program = Program(source=source, arguments=host.arguments)

    limits = ENDLESS_LIMITS if name in ENDLESS else LIMITS
    result = await safe_sandbox.run(program, limits=limits)

    said = result.stdout + result.stderr
    assert SECRET not in said
    assert b"HARM" not in said.replace(b"print('HARM')", b"").replace(b'print("HARM")', b"")
    assert PASSWORDS not in said
    assert len(result.stdout) <= LIMITS.output_bytes
    assert host.visitors() == 0
    assert host.victim.poll() is None
    assert "T" not in Path(f"/proc/{host.victim.pid}/stat").read_text().split()[2]
    assert settled(lambda: not alive(mark)), alive(mark)
    assert [path.name for path in host.folder.iterdir()] == ["secret"]
    assert host.secret.read_bytes() == SECRET
    assert (await safe_sandbox.run(INNOCENT, limits=PATIENT)).stdout == untouched.stdout


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_a_program(name):
    compile(CHEATS[name], name, "exec")


@pytest.mark.long
def test_the_corpus_does_what_it_says_where_nothing_protects(host):
    """The programs are not harmless by mistake."""
    for name, trace in {
        "read the secret": SECRET,
        "read the environment": SECRET,
        "connect to loopback": b"HARM",
        "follow links": SECRET,
        "forge results": b"PASS",
        "files without a name": b"HARM",
    }.items():
        done = subprocess.run(
            [sys.executable, "-c", CHEATS[name], *host.arguments],
            capture_output=True,
            cwd=host.folder,
            check=False,
        )
        assert trace in done.stdout, name
    assert host.visitors() == 2
