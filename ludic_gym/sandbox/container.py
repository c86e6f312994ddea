"""Sandboxes in containers of Docker or Podman, through their command lines.

For machines with a container engine, on which users have neither namespaces nor bubblewrap. A
container starts in about half a second, which the reserve of workers hides.
"""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

from ludic_gym.errors import NoSandbox
from ludic_gym.sandbox.launch import ENVIRONMENT, Launch, worker_command
from ludic_gym.sandbox.linux import file_system_sizes
from ludic_gym.sandbox.types import Guarantees, Limits

# The engines' exit code for a failure of their own.
ENGINE_CODE = 125
# `--init` adds one process to the program's.
SPARE_PROCESSES = 1
# RLIMIT_NPROC counts a user's processes in all containers: each container has its own user.
USERS = range(10_000, 65_000)
INSPECT_S = 30.0
REMOVE = '"$0" rm --force "$1" >/dev/null 2>&1 &'


@dataclass(frozen=True, slots=True)
class Container:
    """The back end. image: has Python 3.11 or newer; it is never downloaded."""

    name: str = "docker"
    image: str = "python:{}-slim".format(".".join(platform.python_version_tuple()[:2]))

    @property
    def guarantees(self) -> Guarantees:
        """See Backend."""
        return Guarantees(
            network=True, filesystem=True, processes=True, memory=True, cpu=True, disk=True
        )

    def fixed(self, limits: Limits) -> tuple[int, ...]:
        """See Backend: the engine sets the limits of a container at its start."""
        return (limits.memory_bytes, limits.processes, limits.disk_bytes)

    def launch(self, limits: Limits) -> Launch:
        """See Backend. Raises NoSandbox without the engine or the image."""
        engine = shutil.which(self.name)
        if engine is None:
            raise NoSandbox(f"{self.name} is not installed")
        require_image(engine, self.image)
        container = f"ludic-{secrets.token_hex(8)}"
        options = tuple(container_options(container, limits))
        return Launch(
            command=(engine, "run", *options, self.image, *worker_command("python3")),
            # The command finds its engine by these variables; the container gets none of them.
            environment=os.environ,
            weighed=False,
            end=partial(remove, engine, container),
        )

    def failed(self, exit_code: int) -> bool:
        """See Backend."""
        return exit_code < 0 or exit_code == ENGINE_CODE


def container_options(container: str, limits: Limits) -> Iterator[str]:
    """Options of `run` for a container without network and with these limits."""
    own, shared = file_system_sizes(limits.disk_bytes)
    user = secrets.choice(USERS)
    yield from ("--name", container, "--rm", "--interactive", "--init", "--pull", "never")
    yield from ("--network", "none", "--hostname", "sandbox")
    yield from ("--read-only", "--tmpfs", f"/tmp:rw,exec,size={own},mode=1777")
    yield from ("--shm-size", str(shared), "--workdir", "/tmp")
    yield from ("--user", f"{user}:{user}", "--cap-drop", "ALL")
    yield from ("--security-opt", "no-new-privileges")
    yield from ("--pids-limit", str(limits.processes + SPARE_PROCESSES))
    yield from ("--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes))
    # An engine would write all output to the host's disk.
    yield from ("--log-driver", "none")
    for name, value in ENVIRONMENT.items():
        yield from ("--env", f"{name}={value}")


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


def remove(engine: str, container: str) -> None:
    """Remove the container, in the background."""
    # The engine keeps a container whose command line was killed. Waiting would block the loop.
    subprocess.run(["sh", "-c", REMOVE, engine, container], check=True)
