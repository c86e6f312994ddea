"""Model calls whose prompts extend each other, as one row of tokens."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ludic_gym.types import Completion, Rollout
from ludic_train.expert_text import experts_of_calls
from ludic_train.types import SAWItem

# Rows of a rollout that a call may continue: a context that rewrites its history leaves one behind
# with every turn, and each is compared with every prompt.
OPEN_ROWS = 8
# The number of a step, and one of its model calls.
Call = tuple[int, Completion]


def chains(calls: Iterable[Call]) -> list[list[Call]]:
    """Calls that make one row each: every prompt extends all tokens before it.

    Rows are in the order of their first calls. Dialogs that take turns, as those of an agent and
    its helper do, are a row each.
    """
    found: list[list[Call]] = []
    for number, completion in calls:
        # The newest first: of two rows that a prompt extends, the later one is longer.
        recent = reversed(found[-OPEN_ROWS:])
        chain = next((c for c in recent if _continues(number, completion, c[-1])), None)
        if chain is None:
            chain = []
            found.append(chain)
        chain.append((number, completion))
    return found


def _continues(number: int, completion: Completion, before: Call) -> bool:
    """True if the call, of that step, can stand in the row that ends with the one before it."""
    step, last = before
    prompt, begun, added = completion.prompt_ids or (), last.prompt_ids or (), _sampled(last)
    start, end = len(begun), len(begun) + len(added)
    # Ids and not text: another way to cut the same text into tokens has another probability. A row
    # has one temperature, and its log-probs, masks and versions are known for all or for none.
    return (
        # Without a token between them, only a reply that was cut off is continued.
        len(prompt) >= end + (number != step)
        and prompt[start:end] == added
        and prompt[:start] == begun
        and completion.sampling.temperature == last.sampling.temperature
        and (completion.logprobs is None) == (last.logprobs is None)
        and (completion.sampling_mask is None) == (last.sampling_mask is None)
        and (completion.policy_version is None) == (last.policy_version is None)
        and (completion.routed_experts is None) == (last.routed_experts is None)
    )


def _sampled(completion: Completion) -> tuple[int, ...]:
    return completion.completion_ids or ()


def row_of(chain: Sequence[Call], rollout: Rollout, *, truncated: bool) -> SAWItem:
    """One row of the calls, whose last one holds the tokens of all."""
    calls = [completion for _, completion in chain]
    last = calls[-1]
    ends = [len(call.prompt_ids or ()) + len(_sampled(call)) for call in calls]
    # By turns: tokens between two completions, and tokens of a completion.
    lengths: list[int] = []
    numbers: list[int] = []
    for (number, call), end, before in zip(chain, ends, [0, *ends], strict=False):
        sampled = len(_sampled(call))
        lengths += (end - sampled - before, sampled)
        numbers += (-1, number)
    steps = np.repeat(np.array(numbers, np.int32), lengths)
    mask = steps >= 0
    logprobs = versions = None
    if last.logprobs is not None:
        logprobs = np.zeros(len(steps), np.float32)
        known = last.logprobs if len(calls) == 1 else [p for c in calls for p in c.logprobs or ()]
        logprobs[mask] = _packed("d", known)
    if last.policy_version is not None:
        versions = np.full(len(steps), -1, np.int32)
        if any(call.versions for call in calls):
            versions[mask] = [version for call in calls for version in _versions(call)]
        else:
            by_call = np.array([call.policy_version for call in calls], np.int32)
            versions[mask] = np.repeat(by_call, lengths[1::2])
    masks = [call.sampling_mask or b"" for call in calls]
    return SAWItem(
        input_ids=_packed("i", (last.prompt_ids or ()) + _sampled(last)),
        action_mask=mask,
        weight=np.zeros(len(steps), np.float32),
        behavior_logprobs=logprobs,
        sampling_mask=None if last.sampling_mask is None else b"".join(masks),
        versions=versions,
        steps=steps,
        temperature=last.sampling.temperature,
        truncated=truncated,
        group=rollout.task.group,
        agent=rollout.agent,
        experts=None
        if last.routed_experts is None
        else experts_of_calls(
            [(end - 1, call.routed_experts or "") for end, call in zip(ends, calls, strict=True)],
            len(steps),
        ),
    )


def _versions(call: Completion) -> Sequence[int]:
    """The version of each sampled token; they differ where a server got new params meanwhile."""
    if call.versions:
        return call.versions
    return [-1 if call.policy_version is None else call.policy_version] * len(_sampled(call))


def _packed(kind: Literal["d", "i"], numbers: Sequence[float]) -> NDArray[Any]:
    """The numbers as float64 or int32, in half of the time that numpy takes."""
    array = np.empty(len(numbers), kind)
    struct.pack_into(f"{len(numbers)}{kind}", array.data, 0, *numbers)
    return array
