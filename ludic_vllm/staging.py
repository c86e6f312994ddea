"""The params of one update at a time, prepared in a thread while the server samples.

The thread that calls these methods is vLLM's own, between two decoding steps: none of them waits
but `take`. It needs torch alone.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any, Protocol

import torch
from torch import Tensor

from ludic_vllm.files import Format, params_in, require_formats


class Twin(Protocol):
    """A copy of the model that can be filled while the server samples."""

    def begin(self) -> int:
        """Number of a new session, which ends the one before."""

    def load(self, session: int, params: Mapping[str, Tensor]) -> bool:
        """Load all params; False if the session has ended meanwhile."""


class Staging:
    """Checks the params of a folder, and prepares them.

    expected: formats of all params. dtypes: as of `require_formats`.
    twin: None for a model that has none.
    is_prepared: True once the twin was filled; False if that cannot be done, and params are loaded
        in the pause. None before the first.
    """

    def __init__(
        self, expected: Mapping[str, Format], dtypes: Collection[torch.dtype], twin: Twin | None
    ) -> None:
        self._expected, self._dtypes, self._twin = expected, dtypes, twin
        self._params: Mapping[str, Tensor] | None = None
        self._preparing: Future[None] | None = None
        self.is_prepared: bool | None = None if twin else False

    def stage(self, folder: str) -> None:
        """Check the params of a folder, in place of earlier ones, and begin to prepare them.

        Raises ValueError for params that are not those of the model, and for a folder that cannot
        be read.
        """
        self.drop()
        params = dict(params_in(folder))
        require_formats(params, self._expected, self._dtypes)
        self._params = params
        if self._twin is not None and self.is_prepared is not False:
            self._preparing = Future()
            work = (self._twin, self._preparing, self._twin.begin(), params)
            # A daemon, because it must not delay the exit of the server.
            Thread(target=self._prepare, args=work, daemon=True).start()

    def take(self) -> Mapping[str, Tensor]:
        """The params, once they are prepared; nothing stays staged.

        Raises ValueError if there are none, and if they could not be prepared.
        """
        params, preparing = self._params, self._preparing
        if params is None:
            raise ValueError("the update has no params: call /update_weights with a folder first")
        if preparing is not None:
            preparing.result()
        # Before they are loaded, so that a failed load leaves nothing for the next session.
        self._params = self._preparing = None
        return params

    def drop(self) -> None:
        """Drop all that is staged, and end a thread that reads it."""
        if self._preparing is not None and self._twin is not None:
            # A trainer may remove the files as soon as it knows that the session has ended.
            self._twin.begin()
        self._params = self._preparing = None

    @property
    def state(self) -> dict[str, Any]:
        """State of the staged params.

        "settled": True if they are prepared, or cannot be. "error": the reason for which they
        cannot be put in. "prepared": True if nothing is loaded in the pause.
        """
        preparing = self._preparing
        is_settled = preparing is None or preparing.done()
        error = preparing.exception() if preparing is not None and is_settled else None
        return {
            "settled": is_settled,
            "error": str(error or ""),
            "prepared": bool(self.is_prepared),
        }

    def _prepare(
        self, twin: Twin, done: Future[None], session: int, params: Mapping[str, Tensor]
    ) -> None:
        """Fill the twin. The first error ends the attempt to prepare, and not the session."""
        try:
            if twin.load(session, params):
                self.is_prepared = True
            done.set_result(None)
        # The loaders of any architecture may raise anything.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if self.is_prepared:
                done.set_exception(ValueError(reason))
                return
            # The files of a session that has ended may be gone, which says nothing of the model.
            if self._preparing is done:
                self.is_prepared = False
                log_unprepared(reason)
            done.set_result(None)


def log_unprepared(reason: str) -> None:
    """Log that params will be loaded in the pause."""
    logging.getLogger(__name__).warning(
        "params are not prepared before a swap, which takes longer then: %s", reason
    )
