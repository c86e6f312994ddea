"""Roles in a Ray cluster of a head and two nodes, each a raylet of this machine."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from faults.ray_cluster import ROOT, Cluster, matching, parent
from faults.scene import BATCH, UPDATES, Scene, assert_undisturbed, push
from redis_server import RedisServer, free_port, needs_redis

from ludic_gym.commands.main import main
from ludic_train.cluster.queues.open_queue import open_queue

ray = pytest.importorskip("ray", reason="there is no ray here; `make test-ray` installs it")
pytestmark = [pytest.mark.ray, needs_redis]
DRIVER = "tests/faults/ray_driver.py"
UPDATES_OF_A_RUN = 40
SMALL = ["--demonstrations", "300", "--sft-updates", "4", "--groups", "2", "--group-size", "4"]
SMALL += ["--updates", str(UPDATES_OF_A_RUN), "--minibatches", "2", "--eval-every", "10"]
SMALL += ["--eval-episodes", "4", "--final-episodes", "4", "--algo", "reinforce"]


def program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


# First, because a cluster has ports that are the same for all.
def test_the_slurm_job_trains_in_a_cluster_of_two_nodes(tmp_path):
    # In place of SLURM: this machine is both nodes, and srun runs what it is given.
    programs = tmp_path / "bin"
    programs.mkdir()
    program(programs, "scontrol", f"echo {ray.util.get_node_ip_address()}")
    program(programs, "srun", 'while [[ "$1" == --* ]]; do shift; done; exec "$@"')
    program(programs, "ludic", f'exec {sys.executable} -m ludic_gym "$@"')
    words = ["tic-tac-toe", "--actors", "1", "--", *SMALL]
    done = subprocess.run(
        ["bash", str(ROOT / "examples" / "cluster" / "ray.sbatch"), *words],
        env={
            **os.environ,
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SLURM_SUBMIT_DIR": str(tmp_path),
            "SLURM_JOB_NODELIST": "both",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_CPUS_PER_TASK": "2",
            "RAY_PORT": str(free_port()),
        },
        capture_output=True,
        text=True,
        timeout=540,
    )
    out = tmp_path / "runs" / "tic-tac-toe"
    logs = {path.name: path.read_text()[-2000:] for path in (out / "logs").glob("*.log")}
    assert done.returncode == 0, (done.stdout, done.stderr, logs)
    assert (out / "results.json").is_file()
    assert matching(str(out)) == []


@pytest.fixture(scope="module")
def cluster():
    cluster = Cluster(2, 2)
    yield cluster
    cluster.close()


@pytest.mark.parametrize("on", ["127.0.0.1:1", "nowhere"])
def test_an_address_without_a_cluster_is_refused_at_once(on, tmp_path, capsys):
    assert main(["launch", "arithmetic", "--redis", "--on", on, "--out", str(tmp_path)]) == 2
    assert "nothing responds there" in capsys.readouterr().err


def test_a_role_with_a_configuration_error_is_started_once(cluster, tmp_path):
    program = [sys.executable, DRIVER.replace("driver", "refused"), cluster.address, str(tmp_path)]
    done = subprocess.run(program, env=cluster.env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stdout + done.stderr
    log = (tmp_path / "server.log").read_text()
    assert log.count("starting on") == 1
    assert f"{tmp_path / 'none'}" in log


@pytest.fixture(scope="module")
def with_cards(cluster):
    """The cluster, with a further node that Ray takes to have three cards."""
    cluster.add(2, gpus=3)
    return cluster


def run_on_cards(cluster, folder, gpus):
    words = [DRIVER.replace("driver", "cards"), cluster.address, str(folder), gpus]
    return subprocess.run(
        [sys.executable, *words], env=cluster.env, capture_output=True, text=True, timeout=180
    )


def test_ranks_and_servers_get_cards_of_their_own_and_actors_get_none(with_cards, tmp_path):
    done = run_on_cards(with_cards, tmp_path, "3")
    assert done.returncode == 0, done.stdout + done.stderr
    printed = {
        path.stem: json.loads(path.read_text().splitlines()[-1]) for path in tmp_path.glob("*.log")
    }
    shown = {name: each["CUDA_VISIBLE_DEVICES"] for name, each in printed.items()}
    assert not shown.pop("actor")
    assert sorted(shown.values()) == ["0", "1", "2"]
    assert sorted(shown) == ["server", "trainer", "trainer-1"]
    # Each sees one card alone, so its number on the node is 0.
    ranks = [(printed[n]["RANK"], printed[n]["LOCAL_RANK"]) for n in ("trainer", "trainer-1")]
    assert ranks == [("0", "0"), ("1", "0")]


def test_more_cards_than_the_cluster_has_are_refused(with_cards, tmp_path):
    done = run_on_cards(with_cards, tmp_path, "4")
    assert done.returncode == 2
    assert "the roles need 4 GPUs, and the Ray cluster has 3" in done.stdout


class InRay(Scene):
    """A scene whose Redis and trainer are roles in a cluster."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder
        folder.mkdir()

    async def start(self):
        """Start the program that has the roles, and connect to its queue."""
        (self.folder / "address.json").unlink(missing_ok=True)
        words = [self.cluster.address, str(self.folder), str(UPDATES), str(BATCH)]
        with (self.folder / "log").open("ab") as log:
            self.driver = subprocess.Popen(
                [sys.executable, DRIVER, *words], env=self.cluster.env, stdout=log, stderr=log
            )
        async with asyncio.timeout(120):
            while not (self.folder / "address.json").exists():
                assert self.driver.poll() is None, (self.folder / "log").read_text()
                await asyncio.sleep(0.1)
        known = json.loads((self.folder / "address.json").read_text())
        self.queue_url = known["url"]
        self.queue = open_queue(self.queue_url, "k", password=known["password"])

    def trainer(self):
        (pid,) = matching("faults.program", str(self.folder))
        return pid

    def redis(self):
        port = urlsplit(self.queue_url).port
        (pid,) = matching("redis-server", f":{port}")
        return pid

    async def ends(self):
        async with asyncio.timeout(240):
            code = await asyncio.to_thread(self.driver.wait)
        logs = [(self.folder / "log"), *(self.folder / "logs").iterdir()]
        assert code == 0, "\n".join(path.read_text()[-3000:] for path in logs)
        await self.queue.aclose()


async def gone(find):
    async with asyncio.timeout(60):
        while find():
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("victim", ["nothing", "trainer", "worker", "redis", "node", "driver"])
async def test_what_is_killed_costs_time_alone(cluster, tmp_path, undisturbed, victim):
    scene = InRay(cluster, tmp_path / "run")
    await scene.start()
    try:
        await push(scene.queue, *range(7))
        await scene.at_version(3)
        trainer = scene.trainer()
        node = cluster.node_of(trainer)
        if victim == "trainer":
            os.kill(trainer, signal.SIGKILL)
        elif victim == "worker":
            os.kill(parent(trainer), signal.SIGKILL)
        elif victim == "redis":
            os.kill(scene.redis(), signal.SIGKILL)
        elif victim == "node":
            assert node > 0
            cluster.kill(node)
            cluster.add(2)
        elif victim == "driver":
            scene.driver.kill()
            scene.driver.wait()
            await scene.queue.aclose()
            # What it has started ends with it.
            await gone(lambda: matching(str(scene.folder)))
            await scene.start()
        await push(scene.queue, *range(7, UPDATES * BATCH))
        await scene.ends()
    finally:
        scene.driver.kill()
        scene.driver.wait()
    await assert_undisturbed(scene, undisturbed)
    await gone(lambda: matching(str(scene.folder)))
    starts = (scene.folder / "logs" / "trainer.log").read_text().count("starting on")
    assert starts == (1 if victim in ("nothing", "redis") else 2)


def records(out):
    path = out / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("ranks", [1, 2])
async def test_a_launched_run_outlives_its_server_its_actor_and_a_rank(cluster, tmp_path, ranks):
    out, log = tmp_path / "run", tmp_path / "log"
    words = ["tic-tac-toe", "--on", cluster.address, "--redis", "--actors", "1", "--out", str(out)]
    words += ["--ranks", str(ranks), "--role-cpus", "0.5", "--", *SMALL]
    with log.open("wb") as output:
        launcher = subprocess.Popen(
            [sys.executable, "-m", "ludic_gym", "launch", *words],
            env=cluster.env,
            stdout=output,
            stderr=output,
        )

    async def trained(updates):
        async with asyncio.timeout(240):
            while not any("groups" in r and r["update"] >= updates for r in records(out)):
                assert launcher.poll() is None, log.read_text()
                await asyncio.sleep(0.2)

    try:
        await trained(6)
        trainers = matching("ludic_gym train", str(out))
        killed = [matching("ludic_gym serve", str(out)), matching("--only actor", str(out))]
        for pid in (*killed[0], *killed[1], max(trainers)):
            os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(300):
            code = await asyncio.to_thread(launcher.wait)
    finally:
        launcher.kill()
        launcher.wait()
    logs = {path.name: path.read_text() for path in (out / "logs").iterdir()}
    assert code == 0, (log.read_text(), {name: text[-2000:] for name, text in logs.items()})
    updates = [record["update"] for record in records(out) if "groups" in record]
    assert len(updates) == len(set(updates))
    assert records(out)[-1]["update"] == 4 + UPDATES_OF_A_RUN
    assert (out / "results.json").is_file()
    assert len(trainers) == ranks
    for name in ("server-0.log", "actor-0.log", "trainer.log"):
        assert logs[name].count("starting on") >= 2, logs[name]
    await gone(lambda: matching(str(out)))


async def test_a_program_outside_the_cluster_launches_a_run_through_rays_client(cluster, tmp_path):
    out, log = tmp_path / "run", tmp_path / "log"
    redis = RedisServer(tmp_path, "--requirepass", "secret", "--appendonly", "yes")
    words = ["tic-tac-toe", "--on", cluster.client_address, "--queue", redis.url, "--actors", "1"]
    words += ["--role-cpus", "0.5", "--out", str(out), "--", *SMALL]
    try:
        with log.open("wb") as output:
            launcher = subprocess.Popen(
                [sys.executable, "-m", "ludic_gym", "launch", *words],
                env={**cluster.env, "LUDIC_QUEUE_PASSWORD": "secret"},
                stdout=output,
                stderr=output,
            )
        try:
            async with asyncio.timeout(420):
                code = await asyncio.to_thread(launcher.wait)
        finally:
            launcher.kill()
            launcher.wait()
    finally:
        redis.kill()
    assert code == 0, log.read_text()
    assert records(out)[-1]["update"] == 4 + UPDATES_OF_A_RUN
    assert (out / "results.json").is_file()
    assert "secret" not in log.read_text() + (out / "queue.json").read_text()
    await gone(lambda: matching(str(out)))
