"""Params that arrive in a thread while the server samples. Needs torch alone.

The thread that calls these methods is vLLM's own, between two decoding steps: none of them waits
for the network or a disk but `settled`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from torch import Tensor

from ludic_vllm.wire import ParamInfo, checksum, few, unpacked

Receive = Callable[[], Tensor]
# Tells the trainer that a chunk has arrived ("") or why not.
Report = Callable[[str], object]
# Takes the params of a chunk, and True for the last chunk.
Load = Callable[[Mapping[str, Tensor], bool], None]
Shapes = Mapping[str, tuple[int, ...]]


class Staging:
    """The params of one session, chunk by chunk, in the order in which they were announced.

    expected: names and shapes of all params.
    load: takes each chunk in the thread, after those before it; None for nothing.
    keep: False releases the params of a chunk as soon as `load` has taken them.
    Every error is a ValueError, and leaves the model as it is: nothing here has access to it.
    """

    def __init__(self, expected: Shapes, load: Load | None = None, *, keep: bool = True) -> None:
        self._expected, self._load, self._keep = expected, load, keep
        self._announced: set[str] = set()
        self._chunks: list[Future[dict[str, Tensor | None]]] = []

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
        self._announced.update(info.name for info in infos)
        take = partial(self._take, is_last=self._announced == self._expected.keys())
        chunk: Future[dict[str, Tensor | None]] = Future()
        # A daemon, because a transfer from a lost trainer blocks up to its time limit, and must not
        # delay the exit of the server.
        work = threading.Thread(
            target=_receive,
            args=(chunk, before, infos, receive, expected_sum, report, take),
            daemon=True,
        )
        self._chunks.append(chunk)
        work.start()

    @property
    def is_settled(self) -> bool:
        """True if `settled` would not wait."""
        return all(chunk.done() for chunk in self._chunks)

    def settled(self) -> dict[str, Tensor | None]:
        """All params by name, once every announced chunk has arrived; None for those released.

        Raises ValueError for a chunk that did not arrive whole, and if a param is missing.
        """
        staged: dict[str, Tensor | None] = {}
        for chunk in self._chunks:
            staged |= chunk.result()
        missing = sorted(self._expected.keys() - staged.keys())
        if missing:
            raise ValueError(f"the update lacks {few(missing)}")
        return staged

    def _take(self, params: Mapping[str, Tensor], *, is_last: bool) -> dict[str, Tensor | None]:
        """The params that are kept of a chunk."""
        if self._load is not None:
            self._load(params, is_last)
        return dict(params) if self._keep else dict.fromkeys(params)


def _receive(
    chunk: Future[dict[str, Tensor | None]],
    before: Future[dict[str, Tensor | None]] | None,
    infos: Sequence[ParamInfo],
    receive: Receive,
    expected_sum: int | None,
    report: Report,
    take: Callable[[Mapping[str, Tensor]], dict[str, Tensor | None]],
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
        chunk.set_result(take(dict(unpacked(infos, buffer))))
        report("")
    except (RuntimeError, OSError, ValueError) as error:
        if not chunk.done():
            chunk.set_exception(ValueError(str(error)))
            with suppress(OSError):
                report(str(error))
