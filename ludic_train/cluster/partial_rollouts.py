"""Groups that were begun: their completions so far, so that none is sampled twice.

A client samples in slices, and holds the tokens of each. What interrupts a completion between two
slices costs at most one of them: new params, from which the rest is sampled, a server that dies, or
an actor that stops. Every token has the version that sampled it.

A group that was interrupted is played again from its first turn, with the same seeds: each request
that was made before gets its completion, or the tokens that it had, without a server. A request is
known by its prompt's tokens and its sampling parameters. So nothing depends on the environment or
on the policy: one that does not repeat itself makes another request, which is sampled.
"""

from __future__ import annotations

import json
import logging
import math
import random
import secrets
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, get_args

import numpy as np

from ludic_gym.errors import ClientError, DataError, LudicError, PromptTooLong
from ludic_gym.prompts import ExactPrompts, ReadCalls
from ludic_gym.records import from_json, to_json
from ludic_gym.sampling import unpacked_masks
from ludic_gym.types import Completion, FinishReason, Message, Sampling, Task, ToolSchema
from ludic_train.errors import BadGroup, QueueUnavailable

if TYPE_CHECKING:
    from ludic_train.cluster.queues.run_registry import RunRegistry

# Tokens of a slice: what an interruption costs at most, per completion. A request more for each.
SLICE_TOKENS = 256
SCHEMA = 1


@dataclass(slots=True, eq=False)
class PartialCompletion:
    """A completion as far as it was sampled, in slices that follow each other."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    slices: list[Completion] = field(default_factory=list)

    @property
    def ids(self) -> tuple[int, ...]:
        """All tokens so far."""
        return tuple(i for each in self.slices for i in each.completion_ids or ())

    @property
    def is_whole(self) -> bool:
        """True if nothing is left to sample."""
        if not self.slices:
            return False
        # A client without token ids returns whole completions.
        cut = self.slices[-1].finish_reason == "length" and self.slices[-1].completion_ids
        return not cut or len(self.ids) >= self.sampling.max_tokens

    def joined(self, decode: Callable[[Sequence[int]], str]) -> Completion:
        """The slices as one completion, with the version of each token."""
        first, last = self.slices[0], self.slices[-1]
        sampling = replace(first.sampling, max_tokens=self.sampling.max_tokens)
        if len(self.slices) == 1:
            return replace(first, sampling=sampling)
        oldest = [s.policy_version for s in self.slices if s.policy_version is not None]
        versions = [version for each in self.slices for version in _versions(each)]
        return replace(
            last,
            # Not the texts in a row: a character may take two tokens.
            text=decode(self.ids),
            sampling=sampling,
            prompt_ids=self.prompt_ids,
            completion_ids=self.ids,
            logprobs=tuple(value for each in self.slices for value in each.logprobs or ()),
            policy_version=min(oldest, default=None),
            versions=tuple(versions) if len(versions) == len(self.ids) else None,
            sampling_mask=_masks(self.slices),
        )


def _masks(parts: Sequence[Completion]) -> bytes | None:
    """Sampling masks of all tokens; None if those of one part are unknown."""
    masks = [part.sampling_mask for part in parts]
    return None if None in masks else b"".join(mask for mask in masks if mask is not None)


def _versions(part: Completion) -> Sequence[int]:
    if part.versions is not None or part.policy_version is None:
        return part.versions or ()
    return (part.policy_version,) * len(part.completion_ids or ())


@dataclass(slots=True, eq=False)
class PartialGroup:
    """A group that was begun, or will be.

    task: with a sampling seed, so that its members are the same wherever it is played.
    key: of the group in the queue; "" before it is begun.
    sampled: the completions of this time; earlier: those of a time before, not requested again yet.
    """

    task: Task
    key: str = ""
    sampled: list[PartialCompletion] = field(default_factory=list)
    earlier: list[PartialCompletion] = field(default_factory=list)

    def again(self) -> None:
        """Play it from its first turn: all that was sampled is from an earlier time now."""
        self.earlier = [each for each in (*self.sampled, *self.earlier) if each.slices]
        self.sampled = []

    def requested(self, prompt_ids: tuple[int, ...], sampling: Sampling) -> PartialCompletion:
        """The completion of a request, as far as it was sampled in an earlier time."""
        for number, each in enumerate(self.earlier):
            if (each.prompt_ids, each.sampling) == (prompt_ids, sampling):
                # Each once: two equal requests without a seed are two draws.
                found = self.earlier.pop(number)
                break
        else:
            found = PartialCompletion(prompt_ids, sampling)
        self.sampled.append(found)
        return found

    @property
    def tokens(self) -> int:
        """Tokens that were sampled for it so far."""
        return sum(len(each.ids) for each in (*self.sampled, *self.earlier))

    @property
    def oldest(self) -> int | None:
        """The oldest version of these tokens; None without any."""
        parts = [s for each in (*self.sampled, *self.earlier) for s in each.slices]
        return min((version for part in parts for version in _versions(part)), default=None)


# The group that a coroutine plays for: a client cannot tell it from a request.
CURRENT_GROUP: ContextVar[PartialGroup | None] = ContextVar("played", default=None)


class ContinuingClient(Protocol):
    """A client that continues token ids."""

    @property
    def prompts(self) -> ExactPrompts:
        """Renderer of its prompts."""

    async def continued(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """The continuation of these token ids."""


class ResumableClient:
    """Client whose completions can be interrupted and continued, within a group that is played.

        client = ResumableClient(VLLMTokenClient(urls, render), decode)

    client: samples; decode: text of token ids, as its servers make it.
    slice_tokens: tokens of a request at most. Requests with `stop` are sent whole, because a server
        does not find a stop string whose first tokens are in its prompt; so are all after one whose
        server returned the experts of its tokens.
    read_calls: as of `VLLMTokenClient`.
    tokens: tokens sampled so far. replayed: tokens that needed no sampling again.
    """

    def __init__(
        self,
        client: ContinuingClient,
        decode: Callable[[Sequence[int]], str],
        *,
        slice_tokens: int = SLICE_TOKENS,
        read_calls: ReadCalls | None = None,
    ) -> None:
        self._client, self._decode, self._slice_tokens = client, decode, slice_tokens
        self._read_calls = read_calls
        self._returns_experts = False
        self.tokens = self.replayed = 0

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next assistant message.

        Raises ClientError for tools without `read_calls`, and the client's errors.
        """
        if tools and self._read_calls is None:
            raise ClientError("no read_calls for tools; use ToolUse(protocol=TextTools())")
        prompt_ids = tuple(self._client.prompts.token_ids(messages, tools))
        partial = CURRENT_GROUP.get() or PartialGroup(Task(env_id=""))
        known = partial.requested(prompt_ids, sampling)
        self.replayed += len(known.ids)
        while not known.is_whole:
            try:
                part = await self._client.continued((*prompt_ids, *known.ids), self._next(known))
            except PromptTooLong:
                if not known.slices:
                    raise
                # The slices so far fill what prompt and completion may have together.
                break
            known.slices.append(part)
            self.tokens += len(part.completion_ids or ())
            self._returns_experts |= part.routed_experts is not None
        whole = known.joined(self._decode)
        return self._read_calls(whole, tools) if tools and self._read_calls else whole

    def _next(self, known: PartialCompletion) -> Sampling:
        """The parameters of the next slice."""
        sampling, done = known.sampling, len(known.ids)
        rest = sampling.max_tokens - done
        whole = bool(sampling.stop) or self._returns_experts
        seed = sampling.seed
        if done and seed is not None:
            # The same one would draw the numbers of the first slice again.
            seed = random.Random(f"{seed}:{done}").getrandbits(63)
        tokens = rest if whole else min(rest, self._slice_tokens)
        return replace(sampling, max_tokens=tokens, seed=seed)


def partial_group_to_bytes(partial: PartialGroup) -> bytes:
    """A group for the registry. Raises DataError for a task that has no form in JSON."""
    sampled = [
        {
            "prompt_ids": each.prompt_ids,
            "sampling": to_json(each.sampling),
            "slices": [to_json(part) for part in each.slices],
        }
        for each in (*partial.sampled, *partial.earlier)
        if each.slices
    ]
    task = to_json(partial.task)
    record = {"schema": SCHEMA, "key": partial.key, "task": task, "sampled": sampled}
    return json.dumps(record).encode()


def partial_group_from_bytes(data: bytes) -> PartialGroup:
    """The group of another actor, with all that was sampled in `earlier`.

    Raises BadGroup for malformed bytes: other programs can write into the same Redis.
    """
    try:
        record: Any = json.loads(data)
        if record["schema"] != SCHEMA:
            raise BadGroup(f"a partial group of schema {record['schema']!r}, and this is {SCHEMA}")
        task, key = from_json(Task, record["task"]), record["key"]
        _require(isinstance(key, str) and isinstance(task.seed, int), "no key or no seed")
        return PartialGroup(task, key, earlier=[_sampled(each) for each in record["sampled"]])
    except BadGroup:
        raise
    # What untrusted JSON can do wrong is no list of errors that ends; nothing is run by it.
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        LudicError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise BadGroup(f"no partial group: {error!r:.300}") from error


def _sampled(record: Any) -> PartialCompletion:  # noqa: ANN401
    """The completion of a record. Raises BadGroup for tokens that do not fit together."""
    sampling = from_json(Sampling, record["sampling"])
    found = PartialCompletion(tuple(record["prompt_ids"]), sampling)
    _require(_are(int, found.prompt_ids) and isinstance(sampling.max_tokens, int), "bad prompt_ids")
    for part in record["slices"]:
        each = from_json(Completion, part)
        ids, logprobs = each.completion_ids or (), each.logprobs or ()
        _require(_are(int, ids) and len(ids) > 0 and len(ids) == len(logprobs), "bad tokens")
        _require(_are(float, logprobs) and all(map(math.isfinite, logprobs)), "bad log-probs")
        _require(each.versions is None or len(each.versions) == len(ids), "bad versions")
        _require(_are(int, each.versions or ()), "bad versions")
        _require(isinstance(each.policy_version, int | None), "bad policy_version")
        _require(isinstance(each.text, str), "bad text")
        if each.sampling_mask is not None:
            unpacked_masks(each.sampling_mask, np.array(ids))
        _require(each.finish_reason in get_args(FinishReason), "bad finish_reason")
        _require(isinstance(each.sampling, Sampling), "bad sampling")
        found.slices.append(each)
    return found


def _are(kind: type, values: Sequence[object]) -> bool:
    kinds = (int, float) if kind is float else kind
    return all(isinstance(value, kinds) and not isinstance(value, bool) for value in values)


def _require(is_right: bool, fault: str) -> None:
    if not is_right:
        raise BadGroup(f"no partial group: {fault}")


# Kinds of environments of an actor's own tasks that it remembers.
MOST_KINDS = 1_024


class Relay:
    """An actor's end of a registry. registry: None for a queue without one: nothing is handed over.

    The Redis is not trusted: a group of another actor is continued only if this one has had tasks
    of its own with the same environment and arguments.
    """

    def __init__(self, registry: RunRegistry | None) -> None:
        self._registry = registry
        self._kinds: set[str] = set()

    def new(self, task: Task | None) -> PartialGroup | None:
        """A group of this actor's own task, to begin; None without one."""
        if task is None:
            return None
        if len(self._kinds) < MOST_KINDS:
            self._kinds.add(_kind(task))
        if task.sampling.seed is None:
            # The members of the group are the same then, wherever it is continued.
            task = replace(task, sampling=replace(task.sampling, seed=secrets.randbits(63)))
        return PartialGroup(task)

    async def take(self) -> PartialGroup | None:
        """A group that another actor has begun, which no third one gets; None without any."""
        # Without a task of its own, it knows no environment.
        if self._registry is None or not self._kinds:
            return None
        log = logging.getLogger(__name__)
        try:
            if (data := await self._registry.take()) is None:
                return None
            partial = partial_group_from_bytes(data)
            if _kind(partial.task) not in self._kinds:
                # For another actor, or for this one when it has had such a task.
                await self._registry.hand_over(data)
                return None
        # The queue, in the same Redis, waits and says so.
        except QueueUnavailable:
            return None
        except BadGroup as error:
            log.warning("a group that was handed over is left out: %s", error)
            return None
        log.info("continuing %s, %d tokens of which are sampled", partial.key, partial.tokens)
        return partial

    async def hand_over(self, partial: PartialGroup) -> bool:
        """Leave a group to the other actors; False if it holds no tokens, or cannot be sent."""
        if self._registry is None or not partial.tokens:
            return False
        try:
            return await self._registry.hand_over(partial_group_to_bytes(partial))
        except (QueueUnavailable, DataError) as error:
            logging.getLogger(__name__).warning("%s is not handed over: %s", partial.key, error)
            return False


def _kind(task: Task) -> str:
    """The environment of a task, with its arguments."""
    return json.dumps([task.env_id, dict(task.kwargs)], default=str, sort_keys=True)
