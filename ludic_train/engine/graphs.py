"""Steps of a decoder as CUDA graphs: a card runs one without waiting for a thousand calls."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Steps of a size that are taken before one is captured, since libraries allocate in the first.
BEFORE = 1
LEAST_SLOTS = 64
# Logits [rows, V] of tokens [rows] at positions [rows], which read so many slots of the cache.
Run = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(slots=True)
class _Step:
    """A step of one size. inputs: tokens and positions, int64 [2, rows], which it reads.

    graph: after the capture; None before.
    """

    inputs: Tensor
    uses: int = 0
    graph: torch.cuda.CUDAGraph | None = None


class StepGraphs:
    """Steps that are captured where their size comes again.

    Rows and slots are rounded up, so that there are few sizes; a step has the same shapes before
    its capture and after it, and so the same bits. Rows that are added write to rows of the cache
    that hold nothing.
    """

    def __init__(self) -> None:
        self._may_capture = True
        self.clear()

    def clear(self) -> None:
        """Forget all steps, and give back their memory: the params or the cache are others now."""
        # The cache of the steps, which may be dropped meanwhile.
        self._cached: weakref.ref[Tensor] | None = None
        self._steps: dict[tuple[int, int], _Step] = {}
        # A pool cannot be captured into again once its graphs are gone.
        self._pool: Any = None
        # Of all sizes, so that each does not keep its own: a row has a vocabulary of numbers.
        self._logits: Tensor | None = None

    def __call__(
        self, run: Run, ids: NDArray[np.int64], at: NDArray[np.int64], cached: Tensor
    ) -> Tensor:
        """Logits [rows, V] of the tokens at these positions; the next step writes over them.

        run: takes a step, the same one in all calls until `clear`.
        cached: keys of the cache, [layers, rows, heads, slots, head_size].
        """
        if self._cached is None or self._cached() is not cached:
            # A graph writes to the memory that it was captured with.
            self.clear()
            self._cached = weakref.ref(cached)
        number, most = len(ids), cached.shape[1]
        rows = min(_power_of_two(number), most)
        slots = min(max(_power_of_two(int(at.max()) + 1), LEAST_SLOTS), cached.shape[3])
        step = self._steps.get((rows, slots))
        if step is None:
            inputs = torch.zeros(2, rows, dtype=torch.int64, device=cached.device)
            step = self._steps[rows, slots] = _Step(inputs)
        padded = np.zeros((2, rows), np.int64)
        padded[0, :number], padded[1, :number] = ids, at
        step.inputs.copy_(torch.from_numpy(padded))
        step.uses += 1
        if step.uses > BEFORE and step.graph is None and self._may_capture:
            self._capture(run, step, slots)
        if step.graph is None or self._logits is None:
            logits = run(step.inputs[0], step.inputs[1], slots)
            if self._logits is None and cached.is_cuda:
                self._logits = logits.new_empty(most, logits.shape[1])
            return logits[:number]
        step.graph.replay()
        return self._logits[:number]

    def _capture(self, run: Run, step: _Step, slots: int) -> None:
        """Capture the step; where that fails, none is from now on, with a warning."""
        if self._logits is None:
            return
        # One after the other, so that all can work in the same memory.
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads may use the card meanwhile.
            with torch.cuda.graph(graph, self._pool, capture_error_mode="thread_local"):
                logits = run(step.inputs[0], step.inputs[1], slots)
                self._logits[: len(logits)] = logits
            step.graph = graph
        except RuntimeError as error:
            self._may_capture = False
            logging.getLogger(__name__).warning(
                "the local engine takes steps without CUDA graphs, which is slower: %s",
                str(error).partition("\n")[0],
            )


def _power_of_two(number: int) -> int:
    """The least power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()
