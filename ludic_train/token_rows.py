"""Rows of the tokens of model calls: calls whose prompts extend each other are one row."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec.msgpack import Encoder
from numpy.typing import NDArray

from ludic_gym.types import Completion, Rollout
from ludic_train.expert_text import experts_of_calls
from ludic_train.types import SAWItem

# Rows of a rollout that a call may continue: a context that rewrites its history leaves one behind
# with every turn, and each is compared with every prompt.
OPEN_ROWS = 8
# The number of a step, and one of its model calls.
Call = tuple[int, Completion]
# Takes half of the time of a comparison of tuples. `int` is for the integers of NumPy.
_IDS = Encoder(enc_hook=int)


def chains(calls: Sequence[Call]) -> list[list[Call]]:
    """Calls that make one row each: every prompt extends all tokens before it.

    Rows are in the order of their first calls. Dialogs that take turns, as those of an agent and
    its helper do, are a row each.
    """
    if len(calls) == 1:
        return [list(calls)]
    found, tokens = list[list[Call]](), list[bytes]()
    for call in calls:
        prompt = _encoded(call[1].prompt_ids)
        # The newest first: of two rows that a prompt extends, the later one is longer.
        for row in range(len(found))[: -OPEN_ROWS - 1 : -1]:
            # Ids and not text: another way to cut the same text into tokens has another
            # probability. Without a token between them, only a reply that was cut off is continued.
            if prompt.startswith(tokens[row]) and _can_share(
                call, found[row][-1], is_next=len(prompt) > len(tokens[row])
            ):
                break
        else:
            row = len(found)
            found.append([])
            tokens.append(b"")
        found[row].append(call)
        tokens[row] = prompt + _encoded(call[1].completion_ids)
    return found


def _encoded(ids: Sequence[int] | None) -> bytes:
    """The ids as bytes; those of a part that they begin with are the beginning of these."""
    if not ids:
        return b""
    # Each id tells its own length; that of all is left out.
    header = 1 if len(ids) < 2**4 else 3 if len(ids) < 2**16 else 5
    return _IDS.encode(ids)[header:]


def _can_share(call: Call, before: Call, *, is_next: bool) -> bool:
    """True if a call whose prompt extends the one before it can stand in the same row.

    is_next: True if the prompt has a further token.
    """
    number, completion = call
    step, last = before
    # A row has one temperature, and its log-probs, masks and versions are known for all or none.
    return (
        (is_next or number == step)
        and completion.sampling.temperature == last.sampling.temperature
        and (completion.logprobs is None) == (last.logprobs is None)
        and (completion.sampling_mask is None) == (last.sampling_mask is None)
        and (completion.policy_version is None) == (last.policy_version is None)
        and (completion.routed_experts is None) == (last.routed_experts is None)
    )


def row_of(chain: Sequence[Call], rollout: Rollout, *, truncated: bool) -> SAWItem:
    """One row of the calls, whose last one holds the tokens of all."""
    calls = [completion for _, completion in chain]
    last = calls[-1]
    # By turns: tokens between two completions, and tokens of a completion.
    lengths, numbers, ends, end = list[int](), list[int](), list[int](), 0
    for number, call in chain:
        prompt, sampled = len(call.prompt_ids or ()), len(call.completion_ids or ())
        lengths += (prompt - end, sampled)
        numbers += (-1, number)
        ends.append(end := prompt + sampled)
    turns = np.array(lengths)
    steps = np.array(numbers, np.int32).repeat(turns)
    mask = steps >= 0
    logprobs = versions = experts = None
    if last.logprobs is not None:
        logprobs = np.zeros(end, np.float32)
        logprobs[mask] = _packed("f", [call.logprobs for call in calls])
    if last.policy_version is not None:
        if any(call.versions for call in calls):
            versions = np.full(end, -1, np.int32)
            versions[mask] = [version for call in calls for version in _versions(call)]
        else:
            by_turn = [version for call in calls for version in (-1, call.policy_version)]
            versions = np.array(by_turn, np.int32).repeat(turns)
    if last.routed_experts is not None:
        known = [(end - 1, c.routed_experts or "") for c, end in zip(calls, ends, strict=True)]
        experts = experts_of_calls(known, end)
    masked = last.sampling_mask is not None
    return SAWItem(
        input_ids=_packed("i", [last.prompt_ids, last.completion_ids]),
        action_mask=mask,
        weight=np.zeros(end, np.float32),
        behavior_logprobs=logprobs,
        sampling_mask=b"".join([c.sampling_mask or b"" for c in calls]) if masked else None,
        versions=versions,
        steps=steps,
        temperature=last.sampling.temperature,
        truncated=truncated,
        group=rollout.task.group,
        agent=rollout.agent,
        experts=experts,
    )


def _versions(call: Completion) -> Sequence[int]:
    """The version of each sampled token; they differ where a server got new params meanwhile."""
    known = -1 if call.policy_version is None else call.policy_version
    return call.versions or [known] * len(call.completion_ids or ())


def _packed(kind: str, parts: Sequence[Sequence[float] | None]) -> NDArray[Any]:
    """The numbers of all parts in order, in a half of the time that NumPy takes.

    kind: "i" for int32, "f" for float32.
    """
    # By parts, because to join them first takes as long as to pack a quarter of the numbers.
    packed = [_packer(len(part), kind)(*part) for part in parts if part]
    return np.frombuffer(bytearray().join(packed), kind)


# `struct.pack` would copy its arguments twice, to put the format before them.
@lru_cache(maxsize=4096)
def _packer(length: int, kind: str) -> Callable[..., bytes]:
    return struct.Struct(f"{length}{kind}").pack
