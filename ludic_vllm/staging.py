"""Params that arrive in a thread while the server samples. Needs torch alone.

The thread that calls these methods is vLLM's own, between two decoding steps: none of them waits
for the network or a disk but `settled`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress

from torch import Tensor

from ludic_vllm.wire import ParamInfo, checksum, few, unpacked

Receive = Callable[[], Tensor]
# Tells the trainer that a chunk has arrived ("") or why not.
Report = Callable[[str], object]
Shapes = Mapping[str, tuple[int, ...]]


class Staging:
    """The params of one session, chunk by chunk, in the order in which they were announced.

    expected: names and shapes of all params.
    Every error is a ValueError, and leaves the model as it is: nothing here has access to it.
    """

    def __init__(self, expected: Shapes) -> None:
        self._expected = expected
        self._chunks: list[Future[dict[str, Tensor]]] = []

    def add(
        self,
        infos: Sequence[ParamInfo],
        receive: Receive,
        expected_sum: int | None,
        report: Report = lambda error: None,
    ) -> None:
        """Receive a chunk in a thread, after those before it; returns at once.

        infos: its params. receive: returns its buffer, and may block.
        expected_sum: checksum of the buffer; None checks nothing. report: called at the end.
        Raises ValueError for params that the model does not have, and for the error of an earlier
        chunk.
        """
        wrong = [
            f"{i.name} {list(i.shape)}" for i in infos if self._expected.get(i.name) != i.shape
        ]
        if wrong:
            raise ValueError(
                f"the model has no params of {few(wrong)}; is the trainer's model another one?"
            )
        before = self._chunks[-1] if self._chunks else None
        if before is not None and before.done():
            before.result()
        chunk: Future[dict[str, Tensor]] = Future()
        # A daemon, because a transfer from a lost trainer blocks up to its time limit, and must not
        # delay the exit of the server.
        work = threading.Thread(
            target=_receive,
            args=(chunk, before, infos, receive, expected_sum, report),
            daemon=True,
        )
        self._chunks.append(chunk)
        work.start()

    def settled(self) -> dict[str, Tensor]:
        """All params by name, once every announced chunk has arrived.

        Raises ValueError for a chunk that did not arrive whole, and if a param is missing.
        """
        staged: dict[str, Tensor] = {}
        for chunk in self._chunks:
            staged |= chunk.result()
        missing = sorted(self._expected.keys() - staged.keys())
        if missing:
            raise ValueError(f"the update lacks {few(missing)}")
        return staged


def _receive(
    chunk: Future[dict[str, Tensor]],
    before: Future[dict[str, Tensor]] | None,
    infos: Sequence[ParamInfo],
    receive: Receive,
    expected_sum: int | None,
    report: Report,
) -> None:
    """Set the result of a chunk, or its error, and report it."""
    try:
        # An error of an earlier chunk ends the session.
        if before is not None:
            before.result()
        buffer = receive()
        if expected_sum is not None and (found := checksum(buffer)) != expected_sum:
            raise ValueError(
                f"the checksum of {few(info.name for info in infos)} is {found}, the trainer's "
                f"{expected_sum}: the params did not arrive as they were sent"
            )
        # First, because the trainer announces the last part when all chunks are reported.
        chunk.set_result(dict(unpacked(infos, buffer)))
        report("")
    except (RuntimeError, OSError, ValueError) as error:
        if not chunk.done():
            chunk.set_exception(ValueError(str(error)))
            with suppress(OSError):
                report(str(error))
