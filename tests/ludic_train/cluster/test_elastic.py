"""Servers that join and leave a run; each is a process of its own, and so is the Redis."""

import asyncio
import signal
from contextlib import asynccontextmanager, suppress

import forked
import pytest
from redis_server import free_port, needs_redis
from served_run import served_run, start_model

from ludic_gym.commands.main import main
from ludic_gym.errors import ConfigError
from ludic_train.cluster import server_versions
from ludic_train.cluster.address import Address, read_address, write_address
from ludic_train.cluster.publish.control import ControlClient
from ludic_train.cluster.queues import run_registry
from ludic_train.cluster.queues.open_queue import open_registry
from ludic_train.cluster.queues.redis_queue import RedisQueue
from ludic_train.errors import PublishError
from ludic_train.models.load import save_model

pytestmark = needs_redis
UPDATES = 24


class Server:
    """`ludic serve --join` with Ludic's local engine, for the run in `out`."""

    def __init__(self, served, out):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        words = ["serve", str(served), "--engine", "local", "--port", str(self.port)]
        self.log = out / f"server-{self.port}.log"
        with self.log.open("wb") as log:
            self.process = forked.Python(
                ["-m", "ludic_gym", *words, "--join", str(out)], stdout=log, stderr=log
            )

    async def sampled(self):
        """Completions since its start."""
        server = ControlClient(self.url)
        try:
            page = await server.text("GET", "/metrics")
        finally:
            await server.aclose()
        line = next(x for x in page.splitlines() if x.startswith("vllm:request_success_total{"))
        return float(line.split()[-1])

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()


@asynccontextmanager
async def run_of_joiners(folder, redis_url):
    """A run that servers join, the function that starts one, and all that were started."""
    out, started = folder / "run", []
    out.mkdir()
    save_model(*start_model(), folder / "served")

    def start():
        started.append(Server(folder / "served", out))
        return started[-1]

    try:
        async with served_run(out, "join", queue=redis_url) as run:
            run.stage.trainer.batch_source._quiet_s = 0.5
            yield run, start
    finally:
        for server in started:
            server.kill()


async def joined(run):
    address = read_address(run.out)
    async with open_registry(address.url, address.key) as registry:
        return await registry.servers()


async def until(check):
    async with asyncio.timeout(240):
        while not await check():
            await asyncio.sleep(0.05)


async def train_until_it_samples(run, server):
    async def samples():
        await run.train(run.stage.trainer.version + 4)
        # It may not listen yet.
        with suppress(PublishError):
            return await server.sampled() > 0

    await until(samples)


async def assert_learned_from_what_was_sampled(run, updates):
    """Each group was trained on once, soon enough, and had the params that its tokens name."""
    status = await run.status()
    assert status.counts["trained"] == updates
    assert max(status.lags) <= 3
    distances = [abs(line.get("mismatch/kl_at_lag_0", 0.0)) for line in run.batches()]
    assert max(distances) < 1e-6


@pytest.mark.long
async def test_servers_join_in_the_middle_and_a_killed_one_costs_its_own_requests(
    tmp_path, redis_server, caplog
):
    async with run_of_joiners(tmp_path, redis_server.url) as (run, start):
        first = start()
        await run.train(4)
        second = start()
        await train_until_it_samples(run, second)
        texts = [record.getMessage() for record in caplog.records]
        assert f"{second.url} has joined; 2 servers have the params" in texts
        used = next(t for t in texts if t.startswith(f"{second.url} is in use, with version "))
        # Four were published before it started: it was given params before its first request.
        assert int(used.rsplit(" ", 1)[-1]) >= 4
        at = run.stage.trainer.version
        training = asyncio.create_task(run.train(at + UPDATES))
        await asyncio.sleep(0.3)
        first.kill()
        async with asyncio.timeout(120):
            await training
        await assert_learned_from_what_was_sampled(run, at + UPDATES)
        assert f"{first.url} is in use no more" in caplog.text
        assert "joined the run in" in second.log.read_text()


@pytest.mark.long
async def test_a_silent_server_loses_its_lease_and_gets_its_place_back(
    tmp_path, redis_server, monkeypatch, caplog
):
    monkeypatch.setattr(server_versions, "SILENT_S", 1.0)
    async with run_of_joiners(tmp_path, redis_server.url) as (run, start):
        first, second = start(), start()

        async def both():
            return len(await joined(run)) == 2

        await train_until_it_samples(run, second)
        at = run.stage.trainer.version
        second.process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(120):
            await run.train(at + 4)

        async def alone():
            return await joined(run) == [first.url]

        await until(alone)
        second.process.send_signal(signal.SIGCONT)
        await until(both)
        await train_until_it_samples(run, second)
        await assert_learned_from_what_was_sampled(run, run.stage.trainer.version)
        assert f"{second.url} is in use no more" in caplog.text


async def test_a_server_that_is_stopped_leaves_at_once_and_waits_for_its_run(
    tmp_path, redis_server, capsys
):
    save_model(*start_model(), tmp_path / "served")
    server = Server(tmp_path / "served", tmp_path)
    key = f"elastic-{server.port}"
    queue = RedisQueue(redis_server.url, key)
    try:
        # The trainer may come later than the server.
        write_address(tmp_path, Address(url=redis_server.url, key=key, servers=("join",)))
        async with open_registry(redis_server.url, key) as registry:

            async def there():
                return await registry.servers() == [server.url]

            await until(there)
            await asyncio.to_thread(main, ["status", str(tmp_path)])
            assert server.url in capsys.readouterr().out
            server.process.terminate()
            assert await asyncio.to_thread(server.process.wait) == 0
            assert await registry.servers() == []
    finally:
        server.kill()
        await queue.aclose()


async def test_a_roster_takes_addresses_alone(redis_server, monkeypatch):
    monkeypatch.setattr(run_registry, "MOST_SERVERS", 2)
    async with open_registry(redis_server.url, "elastic-registry") as registry:
        assert [await registry.join("http://a:1"), await registry.join("http://b:1")] == [
            True,
            True,
        ]
        assert not await registry.join("http://a:1")
        with pytest.raises(ConfigError, match="http://c:1 is one too many"):
            await registry.join("http://c:1")
        with pytest.raises(ConfigError, match=r"http\(s\) address, got 'file:///etc'"):
            await registry.join("file:///etc")
        await registry.leave("http://a:1")
        assert await registry.servers() == ["http://b:1"]


def test_joining_without_a_redis_is_an_error_with_its_reason(tmp_path, capsys):
    write_address(tmp_path, Address(url=f"file://{tmp_path}/q", key="k", servers=("join",)))
    words = ["serve", str(tmp_path), "--engine", "local", "--port", "0", "--join", str(tmp_path)]
    assert main(words) == 2
    assert "is no Redis, by which servers join a run" in capsys.readouterr().err
    assert main(["train", "tic-tac-toe", "--engine", "join"]) == 2
    assert "engine=join without a queue" in capsys.readouterr().err
