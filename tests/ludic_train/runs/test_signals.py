import os
import signal

import pytest
from two_ranks.learning import random_rows, settings, tiny_model

from ludic_train.algorithms.presets import sft
from ludic_train.runs.signals import stop_signals
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.trainer.trainer import Trainer


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_loop_that_is_told_to_stop_ends_after_its_update(signum):
    source = OfflineBatchSource(random_rows(4), batch_size=4)
    trainer = Trainer(tiny_model(), sft(), source, cfg=settings())

    def at_update_2(version, metrics):
        if version == 2:
            os.kill(os.getpid(), signum)

    with stop_signals() as stop_asked:
        while trainer.version < 100 and not stop_asked():
            await trainer.train(1, on_update=at_update_2)
    assert trainer.version == 2


def test_the_second_signal_ends_at_once():
    with stop_signals() as stop_asked:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop_asked()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_afterwards_signals_mean_what_they_did_before():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stop_signals() as stop_asked:
        assert not stop_asked()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
