"""Orderly stops of a run on Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from ludic_train.distributed.ranks import gathered


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Function that is true once Ctrl-C or SIGTERM came; a second signal ends the process at once.

        with stop_signals() as stop_requested:
            while trainer.version < 1000 and not stop_requested():
                await trainer.train(1)
            save_training(manager, trainer, write_model)

    Schedulers send SIGTERM some time before they kill. Under torch.distributed all ranks call the
    function together, and it is true on all of them once one got a signal. Only in the main thread.
    """
    received: list[int] = []
    with ExitStack() as handlers:

        def note(signum: int, frame: object) -> None:
            received.append(signum)
            # The usual handlers are back, so that the next signal is not only noted.
            handlers.close()

        for signum in (signal.SIGINT, signal.SIGTERM):
            handlers.callback(signal.signal, signum, signal.signal(signum, note))
        yield lambda: any(gathered(b"y" * bool(received)))
