"""Requests to stop, by a signal or by an error, for loops that save before they end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ludic_train.distributed.ranks import all_gather


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """A function that is true after Ctrl-C or SIGTERM; a second signal ends the process at once.

        with stop_signals() as stop_requested:
            while trainer.version < 1000 and not stop_requested():
                await trainer.train(1)
            save_training(manager, trainer, write_model)

    Schedulers send SIGTERM some time before they kill. Under torch.distributed all ranks call the
    function together, and it is true on all once a signal came to one. Python handles signals in
    the main thread only: in any other thread, signals stay as they are.
    The handlers that were there before are back at the end, whichever way the block is left.
    """
    with own_stop_signals() as stop_requested:
        # Gathered, because a rank that stops by itself leaves the others in a collective for ever.
        yield lambda: any(all_gather(b"y" * stop_requested()))


@contextmanager
def own_stop_signals() -> Iterator[Callable[[], bool]]:
    """As `stop_signals`, of this process alone: a function that any rank may call by itself."""
    received: list[int] = []
    with ExitStack() as handlers:

        def note(signum: int, frame: object) -> None:
            received.append(signum)
            # The usual handlers are back, so that the next signal is not only noted.
            handlers.close()

        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                handlers.callback(signal.signal, signum, signal.signal(signum, note))
        yield lambda: bool(received)


class StopRequested(Exception):
    """A stop was requested while a batch or a server was waited for.

    No TrainError: it is a way to end a wait, which the run turns into an orderly end.
    """


@dataclass(slots=True)
class StopSign:
    """Ends the waits of a run's source and publisher; the run sets `is_set` when it begins.

    is_set: must be cheap, since every wait calls it a few times a second.
    failure: the error for which no wait can end well; None without one. As cheap.
    """

    is_set: Callable[[], bool] = lambda: False
    failure: Callable[[], Exception | None] = lambda: None

    def check(self) -> None:
        """Raise StopRequested once a stop was requested, and the failure if there is one."""
        if (error := self.failure()) is not None:
            raise error
        if self.is_set():
            raise StopRequested
