"""Real trainers and actors at one queue, and what became of them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import forked
import numpy as np
from trajectories import call, rollout
from two_ranks.launch import ENVIRONMENT

from ludic_train.cluster.codec import RolloutGroup, group_to_bytes
from ludic_train.cluster.queues.redis_queue import RedisQueue
from ludic_train.cluster.queues.retry import retry
from ludic_train.processes import SUPERSEDED, spawn
from ludic_train.rows import trajectory_from

LONGEST_WAIT_S = 120.0
UPDATES, BATCH = 8, 2


class Processes:
    """Starts trainers and actors, and knows their pids.

    environment: for programs that are started, not forked.
    """

    def __init__(self, **environment):
        self.environment, self.programs = environment, {}

    def now(self):
        """The time as these processes see it."""
        words = [sys.executable, "-c", "import time; print(int(time.time()))"]
        environment = {**os.environ, **self.environment}
        return int(subprocess.run(words, env=environment, capture_output=True, check=True).stdout)

    def start(self, role, folder, **order):
        order = {"role": role, "folder": str(folder), **order}
        words = ["-m", "faults.program", json.dumps(order)]
        environment = {**os.environ, **ENVIRONMENT, **self.environment}
        if self.environment:
            program = spawn([sys.executable, *words], folder / "log", environment)
        else:
            program = forked.spawn(words, folder / "log", environment)
        self.programs[program.pid] = program
        return program.pid

    def signal(self, pid, signum):
        assert pid in self.programs
        os.kill(pid, signum)

    async def end(self, pid, signum=None):
        """The exit code, or less than 0 for the signal that ended it."""
        if signum is not None:
            os.kill(pid, signum)
        program = self.programs.pop(pid)
        try:
            return await asyncio.to_thread(program.wait, LONGEST_WAIT_S)
        except subprocess.TimeoutExpired:
            os.kill(pid, signal.SIGABRT)
            return await asyncio.to_thread(program.wait)

    def close(self):
        for program in self.programs.values():
            program.kill()
            program.wait()


def group(number):
    rng, made = np.random.default_rng(number), []
    for _ in range(2):
        ids = rng.integers(3, 250, 6).tolist()
        said = call(ids[:3], ids[3:], logprobs=(-5.0,) * 3, version=None)
        made.append(trajectory_from(rollout((said,), rewards=[float(rng.normal())])))
    key = f"g{number}"
    return RolloutGroup(key=key, trajectories=tuple(replace(one, group=key) for one in made))


async def push(queue, *wanted):
    for number in wanted:
        data = group_to_bytes(group(number))
        await retry(lambda n=number, d=data: queue.push(f"g{n}", d))


class Scene:
    """One queue, one trainer's folder, and what became of them."""

    def __init__(self, processes, server, folder, key):
        self.processes, self.server, self.folder, self.key = processes, server, folder, key
        self.folder.mkdir(exist_ok=True)
        self.queue = RedisQueue(server.url, key)

    def train(self, **order):
        order = {"updates": UPDATES, "timeout_s": 2.0, **order}
        order = {"url": self.server.url, "key": self.key, "batch": BATCH, **order}
        return self.processes.start("trainer", self.folder, **order)

    def act(self, **order):
        return self.processes.start(
            "actor", self.folder, url=self.server.url, key=self.key, **order
        )

    async def finished(self, pid):
        status = await self.processes.end(pid)
        assert status == 0, (self.folder / "log").read_text()

    async def superseded(self, pid):
        status, log = await self.processes.end(pid), (self.folder / "log").read_text()
        assert status == SUPERSEDED, log
        return log

    def lines(self):
        path = self.folder / "trained.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def rows(self):
        """The group of each row that the params at the end were trained on, in order."""
        last = {line["version"]: line["rows"] for line in self.lines()}
        return [name for version in sorted(last) for name in last[version]]

    async def at_version(self, version):
        async with asyncio.timeout(120):
            while not any(line["version"] >= version for line in self.lines()):
                await asyncio.sleep(0.02)

    async def is_stopped(self, pid):
        state = Path(f"/proc/{pid}/stat")
        async with asyncio.timeout(120):
            while state.read_text().rpartition(")")[2].split()[0] != "T":
                await asyncio.sleep(0.02)

    @property
    def digest(self):
        return (self.folder / "digest").read_text()


def each_twice(*wanted):
    """The rows of these groups: each has two."""
    return [f"g{number}" for number in wanted for _ in range(2)]


async def assert_undisturbed(scene, undisturbed):
    assert scene.rows() == each_twice(*range(UPDATES * BATCH))
    assert scene.digest == undisturbed
