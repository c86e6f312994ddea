"""Ray clusters of several raylets on this machine, whose processes can be killed."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from redis_server import free_port

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("ray")
QUIET = ("--object-store-memory=100000000", "--disable-usage-stats")


def children(pid):
    """Processes that this one has started, and those that they have started."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    direct = [int(word) for word in found.stdout.split()]
    return [each for child in direct for each in (child, *children(child))]


def parent(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^PPid:\s*(\d+)", status, re.MULTILINE).group(1))


def matching(*words):
    """Processes whose command lines hold all these words."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in pids if all(word in command_of(pid) for word in words)]


class Cluster:
    """A head and nodes beside it. cpus: of the nodes; the head has none."""

    def __init__(self, *cpus):
        # Paths of sockets have at most 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        path = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
        self.env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        self.blocks = []
        port = free_port()
        try:
            self._start_all(port, cpus)
        except BaseException:
            self.close()
            raise

    def _start_all(self, port, cpus):
        head = ("--head", f"--port={port}", "--num-cpus=0", f"--temp-dir={self.folder}")
        client_port = free_port()
        head += ("--include-dashboard=false", f"--ray-client-server-port={client_port}")
        text = self._start(*head)
        self.client_address = f"ray://127.0.0.1:{client_port}"
        self.address = re.search(rf"([\w.:]+:{port})", text).group(1)
        for count in cpus:
            self.add(count)

    def add(self, cpus, gpus=0):
        """Start a further node, which says that it has so many cards."""
        self._start(f"--address={self.address}", f"--num-cpus={cpus}", f"--num-gpus={gpus}")

    def _start(self, *words):
        """Start a node; what it prints until it runs."""
        log = self.folder / f"start-{len(self.blocks)}.log"
        command = [PROGRAM, "start", "--block", *words, *QUIET]
        with log.open("wb") as output:
            # A session of its own: its processes are ended as one group.
            process = subprocess.Popen(
                command,
                env=self.env,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.blocks.append(process)
        deadline = time.monotonic() + 90
        while "--block" not in (text := log.read_text()):
            assert process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.1)
        return text

    def node_of(self, pid):
        """Number of the node on which Ray runs a process, 0 for the head."""
        while pid > 1:
            for number, block in enumerate(self.blocks):
                if pid == block.pid:
                    return number
            pid = parent(pid)
        raise AssertionError("no node runs it")

    def kill(self, number):
        """Kill the raylet of a node, and what else it consists of, at once."""
        node = self.blocks[number]
        raylets = [p for p in children(node.pid) if "raylet/raylet" in command_of(p)]
        for pid in (node.pid, *raylets):
            os.kill(pid, signal.SIGKILL)

    def close(self):
        for node in reversed(self.blocks):
            left = [node.pid, *children(node.pid)] if node.poll() is None else []
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            node.wait()
        # Those whose parents were killed.
        for pid in matching(str(self.folder)):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""
