"""OpenEnv's `TrainingTrace`, version 1: the calls of a session as JSON, written and read.

A turn of a trace is a model call. Its loss mask covers prompt and completion, and has a 1 for each
token to train on. Rewards are no part of a trace.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Literal

import msgspec

from ludic_gym.types import Completion, Sampling
from ludic_train.agents.types import Json, Response
from ludic_train.errors import UntrainableRollout


class TraceTurn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """One model call of a trace.

    node_id: unique in the trace. per_token_logps: nats, one per completion token.
    loss_mask: 0 or 1, for each token of prompt and completion.
    request, response, metadata: as the producer wrote them.
    """

    node_id: str
    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    per_token_logps: list[float]
    loss_mask: list[int]
    request: Json = {}
    response: Json = {}
    metadata: Json = {}


class TrainingTrace(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """Model calls of an agent, in their order."""

    schema_version: Literal[1] = 1
    turns: list[TraceTurn]


def trace_of(calls: Iterable[Response]) -> TrainingTrace:
    """The calls of a session as a trace; all sampled tokens are to be trained on.

    Except those by a JSON schema, whose log-probs are not those of the policy.
    """
    return TrainingTrace(turns=[_turn(call) for call in calls])


def trace_to_json(trace: TrainingTrace) -> bytes:
    """The trace as JSON."""
    return msgspec.json.encode(trace)


def trace_from_json(data: bytes | str) -> TrainingTrace:
    """The trace that some producer wrote.

    Raises UntrainableRollout for JSON that is no trace of this version, for lists whose lengths do
    not fit, log-probs that are not finite, and for a node_id that comes twice.

    >>> turn = {
    ...     "node_id": "a",
    ...     "prompt_token_ids": [1, 2],
    ...     "completion_token_ids": [3],
    ...     "per_token_logps": [-0.5],
    ...     "loss_mask": [0, 0, 1],
    ... }
    >>> trace = trace_from_json(msgspec.json.encode({"turns": [turn]}))
    >>> [call.completion_ids for call in completions_of(trace)]
    [(3,)]
    """
    try:
        trace = msgspec.json.decode(data, type=TrainingTrace)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UntrainableRollout(f"no training trace of version 1: {error}") from error
    for turn in trace.turns:
        _check(turn)
    names = [turn.node_id for turn in trace.turns]
    if len(set(names)) < len(names):
        raise UntrainableRollout(f"a node_id comes twice in a training trace: {names!r:.200}")
    return trace


def completions_of(trace: TrainingTrace) -> tuple[Completion, ...]:
    """Completions of the turns that are to be trained on, for the steps of a rollout.

    Raises UntrainableRollout for a turn of which only some sampled tokens are.
    """
    found = []
    for turn in trace.turns:
        sampled = turn.loss_mask[len(turn.prompt_token_ids) :]
        if any(turn.loss_mask) and (not all(sampled) or sum(turn.loss_mask) != len(sampled)):
            # Rows train on all sampled tokens of a call.
            raise UntrainableRollout(
                f"turn {turn.node_id!r} is to be trained on in parts: its loss mask is "
                f"{turn.loss_mask!r:.200}, and a model call is learned from as a whole"
            )
        # Turns that are context alone, such as those of another model, have masks of zeros.
        if sampled and all(sampled):
            found.append(_completion(turn))
    return tuple(found)


def _turn(call: Response) -> TraceTurn:
    """The call as a turn; what rows need beside the tokens is in its metadata."""
    completion = call.completion
    prompt, ids = list(completion.prompt_ids or ()), list(completion.completion_ids or ())
    request = call.request
    versions = completion.versions
    return TraceTurn(
        node_id=call.id,
        prompt_token_ids=prompt,
        completion_token_ids=ids,
        per_token_logps=list(completion.logprobs or ()),
        loss_mask=[0] * len(prompt) + [int(request.schema is None)] * len(ids),
        request={
            "model": request.model,
            "messages": [dict(message) for message in request.messages],
            "tools": list(request.tools),
        },
        response={"text": completion.text, "finish_reason": completion.finish_reason},
        metadata={
            "sampling": asdict(completion.sampling),
            "policy_version": completion.policy_version,
            "versions": None if versions is None else list(versions),
        },
    )


def _completion(turn: TraceTurn) -> Completion:
    """The turn as a model call; what Ludic wrote beside the tokens is read back."""
    found = turn.metadata.get("sampling")
    sampling = Sampling()
    if isinstance(found, dict):
        try:
            sampling = msgspec.convert(found, Sampling)
        except (msgspec.ValidationError, TypeError) as error:
            raise UntrainableRollout(f"turn {turn.node_id!r}: sampling {found!r:.200}") from error
    version, versions = turn.metadata.get("policy_version"), turn.metadata.get("versions")
    return Completion(
        text=str(turn.response.get("text", "")),
        # Producers have reasons of their own; filters of overlong replies need this one alone.
        finish_reason="length" if turn.response.get("finish_reason") == "length" else "stop",
        sampling=sampling,
        prompt_ids=tuple(turn.prompt_token_ids),
        completion_ids=tuple(turn.completion_token_ids),
        logprobs=tuple(turn.per_token_logps),
        policy_version=version if isinstance(version, int) else None,
        versions=tuple(versions) if isinstance(versions, list) else None,
    )


def _check(turn: TraceTurn) -> None:
    """Raise UntrainableRollout for a turn whose lists do not fit together."""
    ids, values, mask = turn.completion_token_ids, turn.per_token_logps, turn.loss_mask
    length = len(turn.prompt_token_ids) + len(ids)
    if not turn.node_id or len(values) != len(ids) or len(mask) != length:
        raise UntrainableRollout(
            f"turn {turn.node_id!r} has {len(ids)} sampled tokens, {len(values)} log-probs and a "
            f"loss mask of {len(mask)} for {length} tokens"
        )
    if not set(mask) <= {0, 1} or not all(map(math.isfinite, values)):
        raise UntrainableRollout(
            f"turn {turn.node_id!r} has a loss mask other than 0 and 1, or a log-prob that is not "
            "finite"
        )
    if min([*turn.prompt_token_ids, *ids], default=0) < 0:
        raise UntrainableRollout(f"turn {turn.node_id!r} has a negative token id")
