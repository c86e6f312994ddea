"""Being asked to stop, and stopping where nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ludic_train.distributed.ranks import gathered


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM came: the first is noted, a second one ends at once.

        with stop_signals() as stop_asked:
            while trainer.version < 1000 and not stop_asked():
                await trainer.train(1)
            save_training(manager, trainer, write_model)

    Schedulers send SIGTERM some time before they kill. Under torch.distributed all ranks ask
    together, and all are told to stop once one was. To be used in the main thread.
    """
    asked: list[int] = []
    usual = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for signum, handler in usual.items():
            signal.signal(signum, handler)

    def note(signum: int, frame: object) -> None:
        asked.append(signum)
        restore()

    for signum in usual:
        signal.signal(signum, note)
    try:
        yield lambda: any(gathered(b"y" * bool(asked)))
    finally:
        restore()
