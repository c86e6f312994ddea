"""Sandboxes in containers of Docker or Podman, through their command lines.

For machines with a container engine, on which users have neither namespaces nor bubblewrap. A
container starts in about half a second, which the reserve of workers hides.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from operator import attrgetter
from pathlib import Path

from ludic_gym.errors import NoSandbox
from ludic_gym.sandbox.launch import ENVIRONMENT, PYTHON_FLAGS, Backend, Launch
from ludic_gym.sandbox.linux import confining_source, file_system_sizes
from ludic_gym.sandbox.seccomp import syscall_filter
from ludic_gym.sandbox.types import Limits

IMAGE = "python:{}.{}-slim".format(*sys.version_info)
# The engines' exit code for a failure of their own.
ENGINE_CODE = 125
# `--init` adds one process to the program's.
SPARE_PROCESSES = 1
# RLIMIT_NPROC counts a user's processes in all containers: each container has its own user.
USERS = range(10_000, 65_000)
INSPECT_S = 30.0
REMOVE = '"$0" rm --force "$1" >/dev/null 2>&1 &'


def container(engine: str, image: str = IMAGE) -> Backend:
    """Back end of an engine, "docker" or "podman".

    image: has Python 3.11 or newer as `python3`; it is never downloaded. The default has this
    process's version of Python.
    """
    return Backend(
        name=engine,
        launch=partial(launch_container, engine, image),
        # The engine sets the limits of a container at its start.
        fixed=attrgetter("memory_bytes", "processes", "disk_bytes"),
        failed=lambda exit_code: exit_code < 0 or exit_code == ENGINE_CODE,
    )


def launch_container(engine: str, image: str, limits: Limits) -> Launch:
    """Launch of a worker in a container. Raises NoSandbox without the engine or the image.

    engine: the name of its command. limits: those of `fixed`; the worker sets the others itself.
    """
    path = shutil.which(engine)
    if path is None:
        raise NoSandbox(f"{engine} is not installed")
    require_image(path, image)
    # Beside the engine's own filter, which differs from one to the next.
    text = f"{confining_source()}\nfilter_calls({syscall_filter()!r})\nmain(0)"
    name = f"ludic-{secrets.token_hex(8)}"
    options = [*container_options(name, limits)]
    folder = tempfile.mkdtemp(prefix="ludic-")
    pid_file = None
    if engine == "podman":
        # Otherwise podman adds writable folders of its own.
        options += ["--read-only-tmpfs=false"]
        # On other systems containers run on a virtual machine. Docker has no such option.
        if sys.platform == "linux":
            pid_file = Path(folder, "pid")
            options += ["--pidfile", str(pid_file)]
    return Launch(
        command=(path, "run", *options, image, "python3", *PYTHON_FLAGS, "-c", text),
        # The command finds its engine by these variables; the container gets none of them.
        environment=os.environ,
        # The program is a descendant of the engine's service, which limits its memory.
        descends=False,
        pid_file=pid_file,
        # Podman's monitor leaves a file "oom" in the working directory.
        folder=folder,
        end=partial(remove, path, name, folder),
    )


def container_options(name: str, limits: Limits) -> Iterator[str]:
    """Options of `run` for a container without network and with these limits.

    name: of the container, by which it is removed. The root file system is read-only. The program
    is a user without capabilities, and its files are in memory.
    """
    private, shared = file_system_sizes(limits.disk_bytes)
    user = secrets.choice(USERS)
    yield from ("--name", name, "--rm", "--interactive", "--init", "--pull", "never")
    yield from ("--network", "none", "--hostname", "sandbox")
    yield from ("--read-only", "--tmpfs", f"/tmp:rw,exec,size={private},mode=1777")
    yield from ("--shm-size", str(shared), "--workdir", "/tmp")
    yield from ("--user", f"{user}:{user}", "--cap-drop", "ALL")
    yield from ("--security-opt", "no-new-privileges")
    yield from ("--pids-limit", str(limits.processes + SPARE_PROCESSES))
    # An equal limit for memory and swap together allows no swap.
    yield from ("--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes))
    # An engine would write all output to the host's disk.
    yield from ("--log-driver", "none")
    for variable, value in ENVIRONMENT.items():
        yield from ("--env", f"{variable}={value}")


@cache
def require_image(engine: str, image: str) -> None:
    """Raise NoSandbox if the engine does not respond or lacks the image."""
    command = [engine, "image", "inspect", image]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=INSPECT_S
        )
    except subprocess.TimeoutExpired as error:
        raise NoSandbox(f"{engine} does not respond within {INSPECT_S:g} s") from error
    if done.returncode == 0:
        return
    error_line = done.stderr.strip().rpartition("\n")[2]
    raise NoSandbox(f"{error_line} (start the engine, then: {engine} pull {image})")


def remove(engine: str, name: str, folder: str) -> None:
    """Remove the container, in the background, and its folder."""
    # Podman may have been killed before it knew the process of its container.
    with suppress(OSError, ValueError):
        pid = int(Path(folder, "pid").read_text())
        if "libpod" in Path(f"/proc/{pid}/cgroup").read_text():
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
    # The engine keeps a container whose command line was killed. Waiting would block the loop.
    subprocess.run(["sh", "-c", REMOVE, engine, name], check=True)
