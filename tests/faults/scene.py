"""Real trainers and actors at one queue, and what became of them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from trajectories import call, rollout

from ludic_train.pipeline.codec import RolloutGroup, group_to_bytes
from ludic_train.pipeline.queues.patience import persistently
from ludic_train.pipeline.queues.redis_stream import RedisQueue
from ludic_train.rows import trajectory_from

ZYGOTE = Path(__file__).with_name("zygote.py")
UPDATES, BATCH = 8, 2


class Processes:
    """Starts trainers and actors, and knows their pids."""

    def __init__(self, **environment):
        self.zygote = subprocess.Popen(
            [sys.executable, ZYGOTE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        self.pids = set()

    def ask(self, **order):
        self.zygote.stdin.write(json.dumps(order) + "\n")
        self.zygote.stdin.flush()
        return int(self.zygote.stdout.readline())

    def now(self):
        """The time as these processes see it."""
        return self.ask(now=True)

    def start(self, role, folder, **order):
        pid = self.ask(role=role, folder=str(folder), log=str(folder / "log"), **order)
        self.pids.add(pid)
        return pid

    def signal(self, pid, signum):
        assert pid in self.pids
        os.kill(pid, signum)

    async def end(self, pid, signum=None):
        if signum is not None:
            os.kill(pid, signum)
        status = await asyncio.to_thread(self.ask, wait=pid)
        self.pids.discard(pid)
        return status

    def close(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        self.zygote.stdin.close()
        self.zygote.stdout.close()
        self.zygote.wait()


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
        await persistently(lambda n=number, d=data: queue.push(f"g{n}", d))


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
