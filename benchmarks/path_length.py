"""Length of the path of one update: files and functions that run, containers of a log-prob.

    python benchmarks/path_length.py

Counts what one in-process GRPO update on Tic-Tac-Toe passes through, from `Trainer.train` to the
optimizer step, sampling included; and the objects that hold a token's log-prob on its way from the
engine to the loss. Short paths are what makes the code easy to follow.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from itertools import count
from pathlib import Path
from types import FrameType

import numpy as np
import torch

import ludic_gym as lg
import ludic_train as lt
from ludic_train.types import TokenLogprobs

ROOT = Path(__file__).parents[1]
PACKAGES = ("ludic_train", "ludic_gym")


def trainer() -> lt.Trainer:
    """A trainer of a tiny model that plays Tic-Tac-Toe."""
    tokenizer = lt.make_tokenizer(["A1 B2 C3 X O"])
    model = lt.make_tiny_model(tokenizer)
    client = lt.LocalChatClient(model, tokenizer)
    tasks = (
        lg.Task(env_id="ludic/TicTacToe-v0", seed=i, sampling=lg.Sampling(max_tokens=2, seed=i))
        for i in count()
    )
    source = lt.RolloutBatchSource(
        tasks, lambda env: lg.ChatPolicy(client), groups_per_batch=4, group_size=4
    )
    return lt.Trainer(model, lt.grpo(filter=None), source, lt.InProcessPublisher(client))


def passed(make_update: lt.Trainer) -> Counter[tuple[str, str]]:
    """Calls of each of our functions, as (file, function), during one update."""
    seen: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, arg: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            relative = path.relative_to(ROOT)
            if relative.parts[0] in PACKAGES:
                seen[str(relative), frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        asyncio.run(make_update.train(1))
    finally:
        sys.setprofile(None)
    return seen


def containers_of_a_logprob() -> list[str]:
    """Types of our objects that hold one log-prob, from the engine's completion to the loss.

    An equal trainer makes the same update twice: once to learn a log-prob, once to look for it in
    everything that our functions take and return.
    """
    first = trainer()
    rollouts: list[lg.Rollout] = []
    first.batch_source.reducer = lambda played: rollouts.extend(played) or {}
    asyncio.run(first.train(1))
    logprobs = rollouts[0].steps[0].decision.completions[0].logprobs
    assert logprobs is not None
    wanted = np.float32(logprobs[0])
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, arg: object) -> None:
        if Path(frame.f_code.co_filename).is_relative_to(ROOT):
            for value in (arg, *frame.f_locals.values()) if event == "return" else ():
                kind = type(value)
                ours = kind.__module__.startswith(PACKAGES) and is_dataclass(value)
                # `TokenLogprobs` holds the trainer's own, which may have the same bits.
                if kind is TokenLogprobs:
                    continue
                if ours and kind.__name__ not in found and holds(value, wanted):
                    found[kind.__name__] = None

    second = trainer()
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        asyncio.run(second.train(1))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(found)


def holds(value: object, wanted: np.float32, depth: int = 9) -> bool:
    """True if the number stands in the object, or in one that it holds."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return value.dtype.kind == "f" and bool((value.astype(np.float32) == wanted).any())
    if isinstance(value, float):
        return np.float32(value) == wanted
    if depth == 0:
        return False
    if is_dataclass(value):
        parts: Iterable[object] = [getattr(value, each.name) for each in fields(value)]
    elif isinstance(value, list | tuple):
        parts = value
    else:
        return False
    return any(holds(part, wanted, depth - 1) for part in parts)


def main() -> None:
    """Print the counts, by package and file."""
    containers = containers_of_a_logprob()
    print(f"a log-prob: {len(containers)} containers: {', '.join(containers)}")
    learner = trainer()
    asyncio.run(learner.train(1))
    seen = passed(learner)
    for package in PACKAGES:
        files = sorted({file for file, _ in seen if file.startswith(package)})
        functions = sum(file.startswith(package) for file, _ in seen)
        print(f"{package}: {len(files)} files, {functions} functions")
        for file in files:
            names = [name for f, name in seen if f == file]
            print(f"  {file:44s}{len(names):4d}")


if __name__ == "__main__":
    main()
