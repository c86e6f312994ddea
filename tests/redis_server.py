"""A real Redis for the tests, on a free port, with nothing in it.

It is the redis-server or valkey-server that is installed, or that LUDIC_REDIS_SERVER names:
LUDIC_REDIS_SERVER=/opt/valkey/bin/valkey-server make test ARGS=tests/ludic_train
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

PROGRAM = (
    os.environ.get("LUDIC_REDIS_SERVER")
    or shutil.which("redis-server")
    or shutil.which("valkey-server")
)
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="there is no redis-server here")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def speaks_tls():
    """True if the server was built with TLS."""
    # Without a certificate it ends by itself, and says what else it lacks.
    options = ["--port", "0", "--save", "", "--tls-port", str(free_port())]
    done = subprocess.run(
        [PROGRAM, *options], capture_output=True, text=True, check=False, timeout=60
    )
    said = done.stdout + done.stderr
    return "Failed finding TLS support" not in said and "Bad directive" not in said


def runs_with(environment: dict[str, str]):
    """True if the server can be started with these variables."""
    command, both = [PROGRAM, "--version"], {**os.environ, **environment}
    try:
        done = subprocess.run(command, env=both, capture_output=True, check=False, timeout=10)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and not done.stderr


class RedisServer:
    """A redis-server process that can be killed, started again and paused."""

    def __init__(
        self, folder: Path, *options: str, environment: dict[str, str] | None = None
    ) -> None:
        self._environment = {**os.environ, **(environment or {})}
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._options = ["--port", str(self.port), "--dir", str(folder), "--save", "", *options]
        self.start()

    def start(self):
        command = [PROGRAM, *self._options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=self._environment)
        for _ in range(600):
            if self.process.poll() is not None:
                raise ChildProcessError(f"{' '.join(command)} ended by itself")
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(8).startswith((b"+PONG", b"-NOAUTH")):
                        return
            except OSError:
                pass
            time.sleep(0.05)
        raise TimeoutError("redis-server did not start within 30 s")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        if self.process.poll() is None:
            self.go_on()
            self.kill()
