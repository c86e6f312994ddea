"""Params that are put together one at a time are never all in the memory of the device."""

import weakref

import pytest
import torch

from ludic_train.cluster.background_publisher import BackgroundPublisher
from ludic_train.cluster.servers.run_server import OwnPublisher
from ludic_train.distributed.device import kept_params, process_group


class Gathered:
    """Params that are each made when they are read; `most` of them lived at a time."""

    def __init__(self, count):
        self.count, self.alive, self.most = count, weakref.WeakSet(), 0

    def __iter__(self):
        for number in range(self.count):
            param = torch.full((3,), float(number))
            self.alive.add(param)
            self.most = max(self.most, len(self.alive))
            yield f"p{number}", param


class Noted:
    """A publisher that reads the params, and keeps their sums."""

    def __init__(self):
        self.seen = []

    async def publish(self, params, version):
        self.seen.append({name: float(param.sum()) for name, param in params})


class Running:
    """A server that runs since its first start."""

    starts = 1

    async def ready(self):
        pass


SUMS = {f"p{number}": 3.0 * number for number in range(20)}


@pytest.mark.parametrize("kind", ["own server", "queue"])
async def test_publishers_hold_two_params_at_most(kind):
    noted, here, params = Noted(), Noted(), Gathered(20)
    away = BackgroundPublisher(noted, here=here)
    publisher = OwnPublisher(Running(), lambda: noted) if kind == "own server" else away
    with process_group("cpu"):
        await publisher.publish(params, 1)
        await away.finish()
        assert params.most <= 2
        if kind == "own server":
            # A restart has the same ones again.
            publisher.start = 0
            await publisher.restore()
            assert noted.seen == [SUMS, SUMS]
        else:
            assert noted.seen == here.seen == [SUMS]
    await away.aclose()


def test_params_of_one_process_are_those_of_the_trainer():
    param, buffers = torch.ones(2), {}
    ((_, kept),) = kept_params([("p", param)], buffers)
    assert kept is param
    assert not buffers
