"""Rows per CPU-second: rollouts of 1,000 tokens in 1, 10 and 50 turns, with their credit.

    python benchmarks/rows.py

The limit is the shortest program that makes the same arrays without checks and credit, and compares
each prompt with the one before it. Beside it: what numpy takes for arrays of the token ids and
log-probs of one turn.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache, partial
from random import Random
from typing import Any

import numpy as np
from msgspec.msgpack import Encoder
from numpy.typing import NDArray
from rates import Line, Work, print_table

from ludic_gym.types import Completion, Decision, Rollout, Sampling, Step, Task
from ludic_train.algorithms.presets import reinforce
from ludic_train.rows import rows_from

TOKENS = 1000
ENCODER = Encoder()
INFO = {"success": True, "reward/correct": 1.0, "answer": "85", "rule": "tag", "row": 7}


def rollout(turns: int, seed: int, *, tokens: int = TOKENS) -> Rollout:
    """A rollout of so many tokens, half of them sampled; each prompt extends the one before."""
    rng, steps = Random(seed), []
    each = tokens // turns // 2
    ids: tuple[int, ...] = ()
    for turn in range(turns):
        # As parsed from a response: each prompt has numbers of its own.
        prompt = tuple(int(str(i)) for i in ids) + _drawn(rng, each)
        reply = _drawn(rng, each)
        ids = prompt + reply
        completion = Completion(
            text="x",
            finish_reason="stop",
            sampling=Sampling(seed=turn),
            prompt_ids=prompt,
            completion_ids=reply,
            logprobs=tuple(-rng.random() for _ in reply),
            policy_version=3,
        )
        decision = Decision(action="x", completions=(completion,))
        last = turn + 1 == turns
        step = Step(
            observation="x",
            decision=decision,
            reward=float(last),
            terminated=last,
            info=INFO if last else {},
        )
        steps.append(step)
    task = Task(env_id="ludic/TicTacToe-v0", kwargs={"opponent": "mixed"}, seed=seed)
    return Rollout(task=task, steps=tuple(steps))


def _drawn(rng: Random, length: int) -> tuple[int, ...]:
    return tuple(rng.randrange(150_000) for _ in range(length))


def rows(turns: int, *, tokens: int = TOKENS) -> Work:
    """Rows of 64 rollouts with their credit."""
    played = [rollout(turns, seed, tokens=tokens) for seed in range(64)]
    algo = reinforce()
    while True:
        yield len(rows_from(played, algo))


def copies(*, tokens: int = TOKENS) -> Work:
    """Arrays of the ids and the log-probs of one rollout of one turn, by numpy alone."""
    (step,) = rollout(1, 0, tokens=tokens).steps
    (completion,) = step.decision.completions
    ids = (completion.prompt_ids or ()) + (completion.completion_ids or ())
    logprobs = completion.logprobs or ()
    while True:
        for _ in range(64):
            np.array(ids, np.int32)
            np.array(logprobs, np.float32)
        yield 64


def same_arrays(turns: int, *, tokens: int = TOKENS) -> Work:
    """The arrays of 64 such rows by the shortest program: no checks, no credit and no records.

    Each prompt is compared with the tokens before it, and the numbers are written once.
    """
    played = [
        [step.decision.completions[0] for step in rollout(turns, seed, tokens=tokens).steps]
        for seed in range(64)
    ]
    while True:
        yield len([arrays(calls) for calls in played])


def arrays(calls: list[Completion]) -> tuple[NDArray[Any], ...]:
    """Ids, mask, steps, log-probs, versions and weights of a row with credit 1."""
    tokens, lengths, logprobs, end = b"", list[int](), list[bytes](), 0
    for call in calls:
        prompt, reply = call.prompt_ids or (), call.completion_ids or ()
        if len(calls) > 1:
            begun = encoded(prompt)
            if not begun.startswith(tokens):
                raise ValueError("a prompt does not extend the one before it")
            tokens = begun + encoded(reply)
        lengths += (len(prompt) - end, len(reply))
        end = len(prompt) + len(reply)
        logprobs.append(packer(f"{len(reply)}f")(*(call.logprobs or ())))
    packed = packer(f"{len(prompt)}i")(*prompt) + packer(f"{len(reply)}i")(*reply)
    ids = np.frombuffer(bytearray(packed), np.int32)
    turns = np.array(lengths)
    steps = np.array([(-1, n) for n in range(len(calls))], np.int32).ravel().repeat(turns)
    mask = steps >= 0
    known = np.zeros(end, np.float32)
    known[mask] = np.frombuffer(b"".join(logprobs), np.float32)
    versions = np.array([-1, 3] * len(calls), np.int32).repeat(turns)
    return ids, mask, steps, known, versions, mask.astype(np.float32)


@lru_cache(maxsize=4096)
def packer(layout: str) -> Callable[..., bytes]:
    """The `pack` of a layout: `struct.pack` copies its arguments to put the layout before them."""
    return struct.Struct(layout).pack


def encoded(ids: tuple[int, ...]) -> bytes:
    """The ids as bytes without their number: comparisons of tuples take twice as long."""
    return ENCODER.encode(ids)[1 if len(ids) < 2**4 else 3 if len(ids) < 2**16 else 5 :]


LINES = tuple(
    Line(
        what=f"rows of 1,000 tokens, {turns} turns",
        ours=partial(rows, turns),
        peers={
            "ids and log-probs by numpy": copies,
        },
        limit=("the same arrays, unchecked", partial(same_arrays, turns)),
        goal=20_000,
    )
    for turns in (1, 10, 50)
)

if __name__ == "__main__":
    print_table("rows", LINES)
