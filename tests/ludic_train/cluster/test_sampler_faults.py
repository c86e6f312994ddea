"""A server that samples is killed, or falls silent: the run goes on, and knows what it learns from.

The server is a process of its own; trainer and actor are here.
"""

import asyncio
import signal
from contextlib import asynccontextmanager

import forked
import pytest
from redis_server import free_port
from served_run import served_run, start_model

from ludic_train.errors import PublishError
from ludic_train.models.load import save_model

UPDATES = 16


class Server:
    """`ludic serve` with Ludic's local engine, at one address however often it is started."""

    def __init__(self, folder):
        save_model(*start_model(), folder)
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        words = ["serve", str(self.folder), "--engine", "local", "--port", str(self.port)]
        with (self.folder / "log").open("ab") as log:
            self.process = forked.Python(["-m", "ludic_gym", *words], stdout=log, stderr=log)

    def signal(self, signum):
        self.process.send_signal(signum)

    def kill(self):
        self.process.kill()
        self.process.wait()


@asynccontextmanager
async def playing(folder):
    """A run that has made its first updates, and its server."""
    server = Server(folder / "served")
    try:
        async with served_run(folder, server.url) as run:
            run.stage.trainer.batch_source._quiet_s = 0.5
            await run.train(4)
            yield run, server
    finally:
        server.kill()


async def assert_learned_from_what_was_sampled(run):
    """Each group was trained on once, soon enough, and had the params that its tokens name."""
    status = await run.status()
    # Two groups for two updates.
    assert status.counts["trained"] == UPDATES
    assert max(status.lags) <= 3
    distances = [abs(line.get("mismatch/kl_at_lag_0", 0.0)) for line in run.batches()]
    assert len(distances) == UPDATES // 2
    assert max(distances) < 1e-6


@pytest.mark.long
@pytest.mark.parametrize("fault", ["killed and started again", "silent"])
async def test_a_server_that_is_away_for_a_while_costs_time_alone(tmp_path, fault):
    async with playing(tmp_path) as (run, server):
        training = asyncio.create_task(run.train(UPDATES))
        await asyncio.sleep(0.1)
        if fault == "silent":
            server.signal(signal.SIGSTOP)
            await asyncio.sleep(4.0)
            server.signal(signal.SIGCONT)
        else:
            server.kill()
            await asyncio.sleep(1.0)
            server.start()
        async with asyncio.timeout(240):
            await training
        await assert_learned_from_what_was_sampled(run)


async def test_a_server_that_stays_away_ends_training_with_a_remedy(tmp_path):
    async with playing(tmp_path) as (run, server):
        run.stage.trainer.publisher._publisher._patience_s = 1.0
        server.kill()
        with pytest.raises(PublishError, match=rf"no answer from {server.url}.*with --resume"):
            async with asyncio.timeout(240):
                await run.train(UPDATES)
