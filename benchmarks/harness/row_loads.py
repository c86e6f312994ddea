"""Rows of rollouts of 1,000 tokens, in one turn or many."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.rates import Work
from ludic_gym.types import Completion, Decision, Rollout, Sampling, Step, Task
from ludic_train.algorithms.presets import reinforce
from ludic_train.rows import rows_from

TOKENS = 1000
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
    begun: tuple[int, ...] = ()
    lengths, logprobs, end = list[int](), list[float](), 0
    for call in calls:
        prompt, reply = call.prompt_ids or (), call.completion_ids or ()
        if prompt[: len(begun)] != begun:
            raise ValueError("a prompt does not extend the one before it")
        lengths += (len(prompt) - end, len(reply))
        begun, end = prompt, len(prompt) + len(reply)
        logprobs += call.logprobs or ()
    ids = np.empty(sum(lengths), np.int32)
    struct.pack_into(f"{len(ids)}i", ids.data, 0, *prompt, *reply)
    steps = np.repeat(np.array([(-1, n) for n in range(len(calls))], np.int32).ravel(), lengths)
    mask = steps >= 0
    known, packed = np.zeros(len(ids), np.float32), np.empty(len(logprobs))
    struct.pack_into(f"{len(logprobs)}d", packed.data, 0, *logprobs)
    known[mask] = packed
    versions = np.where(mask, np.int32(3), np.int32(-1))
    return ids, mask, steps, known, versions, mask.astype(np.float32)
