"""Episodes as lines of JSON, which are read back without loss, token traces and infos included.

Every line has its schema and version, so that files can be appended to and joined. Types that JSON
lacks are marked: {"$tuple": [...]}, {"$dict": [[key, value], ...]} for keys that are no strings,
{"$array": [dtype, shape, values]}, {"$scalar": [dtype, value]}. Floats have all their digits; NaN
and infinities are written as in Python's json.

A model call is written as what it adds to the call of the rollout before: "kept" is the number of
tokens that it took over, of the prompt and the completion of that, and "prompt_ids" are those after
them; so it is with the messages of a request. Log-probs are little-endian float32 in base64, or a
list where float32 does not hold them.

For other programs there are keys of tasks, and the plain values of infos.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import warnings
from array import array
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from ludic_gym.errors import DataError
from ludic_gym.trail import Trail, as_trail, float_numbers, token_ids
from ludic_gym.types import (
    Completion,
    Decision,
    Episode,
    ModelCall,
    Rollout,
    Sampling,
    Step,
    Task,
    ToolCall,
)

SCHEMA = "ludic.episode"
VERSION = 5
JSON = Any
T = TypeVar("T")
Data = Task | Rollout | Step | Decision | Completion | Sampling | ToolCall | ModelCall
# Fields by their content: anything, data, tuples of data. All others are JSON or tuples of it.
_LONGEST_INT = 10_000
OPEN = {"kwargs", "options", "info"}
NESTED: Mapping[str, type[Data]] = {
    "task": Task,
    "sampling": Sampling,
    "decision": Decision,
    "call": ModelCall,
}
SEQUENCES: Mapping[str, type[Data]] = {
    "rollouts": Rollout,
    "steps": Step,
    "completions": Completion,
    "tool_calls": ToolCall,
}
# Fields that are written as base64.
BYTES: Mapping[str, Callable[[bytes], object]] = {
    "sampling_mask": bytes,
    "logprobs": lambda data: Trail(array("f", data)),
}
# Bytes that are read at a time in search of the last line's end.
_PIECE = 1 << 16
_ARRAY_KINDS = "biufU"
# Longer texts of an info hold nothing that credit could use, and would travel with each group.
LONGEST_INFO_TEXT = 200
# That of `json.dumps(..., default=str)`, which would make one for every task.
_ENCODER = json.JSONEncoder(default=str)


@contextmanager
def open_records(
    path: Path | str, about: Callable[[Episode], Mapping[str, JSON]] = lambda episode: {}
) -> Iterator[Callable[[Episode], None]]:
    """A function that appends an episode to the file, as one line and at once.

    A last line without an end, which a crash or a full disk has cut, is removed first: no reader
    could pass it.
    about: further fields of an episode's line.
    It raises DataError for an episode with a value that could not be read back.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_cut_line(path)
    with path.open("ab") as file:

        def append(episode: Episode) -> None:
            file.write(record_line(episode, about(episode)))
            # At once, because another process may read the file, and a crash must lose no episode.
            file.flush()

        yield append


def _remove_cut_line(path: Path) -> None:
    # Not of a device or a pipe.
    if not path.is_file():
        return
    with path.open("r+b") as file:
        end = size = file.seek(0, os.SEEK_END)
        # Backwards: files may be larger than the memory, and most end with a whole line.
        while end > 0:
            start = max(0, end - _PIECE)
            file.seek(start)
            end = start + file.read(end - start).rfind(b"\n") + 1
            if end > start:
                break
        if end < size:
            file.truncate(end)


async def record_episodes(
    episodes: AsyncIterator[Episode], path: Path | str
) -> AsyncIterator[Episode]:
    """The same episodes, each appended to the file first, failed ones included.

    >>> import asyncio
    >>> from tempfile import TemporaryDirectory
    >>> from ludic_gym import OraclePolicy, run_episodes
    >>> async def play(path):
    ...     tasks = [Task(env_id="ludic/Arithmetic-v0", seed=seed) for seed in range(3)]
    ...     return [e.index async for e in record_episodes(run_episodes(tasks, OraclePolicy), path)]
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "episodes.jsonl"
    ...     len(asyncio.run(play(path))), len(list(read_episodes(path)))
    (3, 3)
    """
    with open_records(path) as append:
        async for episode in episodes:
            append(episode)
            yield episode


def write_rollouts(rollouts: Iterable[Rollout], path: Path | str) -> None:
    """Append rollouts without an episode, each as an episode of its own; its index is its position.

    Raises DataError for a rollout with a value that could not be read back.

    >>> from tempfile import TemporaryDirectory
    >>> step = Step(observation="2 + 3 = ?", decision=Decision(action="5"), reward=1.0)
    >>> played = Rollout(task=Task(env_id="ludic/Arithmetic-v0", seed=1), steps=(step,))
    >>> with TemporaryDirectory() as folder:
    ...     write_rollouts([played], Path(folder) / "rollouts.jsonl")
    ...     next(read_rollouts(Path(folder) / "rollouts.jsonl")) == played
    True
    """
    with open_records(path) as append:
        for index, rollout in enumerate(rollouts):
            append(Episode(index=index, task=rollout.task, rollouts=(rollout,)))


def read_episodes(path: Path | str) -> Iterator[Episode]:
    """The episodes of a file, one line at a time.

    Raises DataError, with the number of the line, for one that is no record or has an unknown
    version.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "episodes.jsonl"
    ...     with open_records(path) as append:
    ...         append(Episode(index=0, task=Task(env_id="ludic/ConnectFour-v0"), error="it broke"))
    ...     [episode.error for episode in read_episodes(path)]
    ['it broke']
    """
    return read_lines(path, episode_from_json)


def read_lines(
    path: Path | str, convert: Callable[[JSON], T], *, growing: bool = False
) -> Iterator[T]:
    """The converted JSON of each line.

    growing: leave out a last line without an end, which is being written or was cut by a crash.
    Raises DataError for a line that cannot be converted.
    """
    # Line separators within texts are escaped, or are none to Python's files.
    with Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if growing and not line.endswith("\n"):
                return
            try:
                yield convert(json.loads(line))
            except (ValueError, KeyError, TypeError, RecursionError, DataError) as error:
                raise DataError(
                    f"{path}, line {number}, is no such record: {type(error).__name__}: {error}"
                ) from error


def read_rollouts(path: Path | str) -> Iterator[Rollout]:
    """The rollouts of all episodes of a file."""
    for episode in read_episodes(path):
        yield from episode.rollouts


def episode_to_json(episode: Episode) -> dict[str, JSON]:
    """The episode as a JSON object. Raises DataError for a value that could not be read back."""
    record: dict[str, JSON] = msgspec.to_builtins(_record(episode, is_exact=False), enc_hook=list)
    return record


def record_line(episode: Episode, extra: Mapping[str, JSON]) -> bytes:
    """A line with further fields, and those of `episode_to_json` after them, in UTF-8.

    extra: JSON, or data classes of it; their numbers are finite.

    In a tenth of the time for episodes without a type that JSON lacks, and without requests.
    Raises DataError for a value that could not be read back.
    """
    if _is_exact(episode):
        record = {**extra, **_record(episode, is_exact=True)}
        # A text that UTF-8 has no form for is written as JSON's escape, and an integer of thousands
        # of digits, which no JSON holds, as its repr.
        with suppress(ValueError):
            return msgspec.json.encode(record, enc_hook=list) + b"\n"
    record = {**msgspec.to_builtins(extra), **episode_to_json(episode)}
    return json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"


def _record(episode: Episode, *, is_exact: bool) -> dict[str, Any]:
    """The record for the encoder, which writes data classes and trails itself.

    is_exact: JSON holds all values as they are. Raises DataError.
    """
    for rollout in episode.rollouts:
        if rollout.task != episode.task:
            raise DataError(f"the rollout of {rollout.agent!r} has another task than its episode")
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "index": episode.index,
        "task": episode.task if is_exact else to_json(episode.task),
        # Without the task: with its arguments, it may be longer than a short rollout.
        "rollouts": [_rollout_record(rollout, is_exact=is_exact) for rollout in episode.rollouts],
        "error": episode.error,
        "blame": episode.blame,
    }


def _rollout_record(rollout: Rollout, *, is_exact: bool) -> dict[str, Any]:
    steps, before = list[Any](), None
    for step in rollout.steps:
        if is_exact and not step.decision.completions:
            steps.append(step)
            continue
        calls = list[Any]()
        for call in step.decision.completions:
            calls.append(_call_record(call, before))
            before = call
        decision = {**_fields(step.decision), "completions": calls}
        info = step.info if is_exact else _marked_info(step.info)
        steps.append({**_fields(step), "decision": decision, "info": info})
    record = {**_fields(rollout), "steps": steps}
    del record["task"]
    return record


def _call_record(call: Completion, before: Completion | None) -> dict[str, Any]:
    """The model call, as what it adds to the one before it."""
    record, kept = _fields(call), kept_tokens(call, before)
    if call.prompt_ids is not None:
        record["prompt_ids"] = call.prompt_ids[kept:]
    if call.logprobs is not None:
        numbers: Any = float_numbers(call.logprobs).items
        is_short = numbers.typecode == "f"
        record["logprobs"] = base64.b64encode(numbers).decode() if is_short else list(numbers)
    if call.call is not None:
        same = kept_messages(call.call, before)
        messages = call.call.messages[same:]
        record["call"] = {**_fields(call.call), "messages": messages, "kept": same}
    return record | {"kept": kept}


def kept_tokens(call: Completion, before: Completion | None) -> int:
    """Number of tokens that the prompt took over from the prompt and completion before."""
    prompt = token_ids(call.prompt_ids or ())
    first = token_ids((before and before.prompt_ids) or ())
    sampled = token_ids((before and before.completion_ids) or ())
    kept = prompt.kept(first)
    if kept == len(first):
        kept += token_ids(prompt[kept : kept + len(sampled)]).kept(sampled)
    return kept


def kept_messages(call: ModelCall, before: Completion | None) -> int:
    """Number of messages that the request took over from the one before."""
    known = before.call if before is not None else None
    return as_trail(call.messages).kept(as_trail(known.messages if known is not None else ()))


def _fields(data: Data) -> dict[str, Any]:
    return {name: getattr(data, name) for name in data.__slots__}


def _is_exact(episode: Episode) -> bool:
    """True if JSON holds the episode without marks, and there is no request, which may hold any."""
    steps = [step for rollout in episode.rollouts for step in rollout.steps]
    if not math.isfinite(sum(step.reward + step.decision.reward for step in steps)):
        return False
    values = [episode.task.kwargs, episode.task.options or {}, *[step.info for step in steps]]
    return all(
        type(name) is str
        and not name.startswith("$")
        and (type(value) in _EXACT or (type(value) is float and math.isfinite(value)))
        for mapping in values
        for name, value in mapping.items()
    ) and not any(c.call for step in steps for c in step.decision.completions)


_EXACT = {str, int, bool, type(None)}


def episode_from_json(record: Mapping[str, JSON]) -> Episode:
    """The episode of a record of `episode_to_json`. Raises DataError for another schema."""
    if record["schema"] != SCHEMA or record["version"] != VERSION:
        raise DataError(
            f"a record of {record['schema']!r} version {record['version']!r}; "
            f"this code reads {SCHEMA!r} version {VERSION}; `ludic view FOLDER --convert` writes "
            "records of the version before anew"
        )
    task = from_json(Task, record["task"])
    for item in record["rollouts"]:
        _complete_calls(item)
    rollouts = tuple(from_json(Rollout, item, task=task) for item in record["rollouts"])
    end = {"error": record["error"], "blame": record["blame"]}
    return Episode(index=record["index"], task=task, rollouts=rollouts, **end)


def _complete_calls(rollout: JSON) -> None:
    """Give each model call of the record the part that it took over; again, it changes nothing."""
    tokens, messages = token_ids(()), Trail[JSON]([])
    for completion in (c for step in rollout["steps"] for c in step["decision"]["completions"]):
        if completion["prompt_ids"] is not None:
            completion["prompt_ids"] = _kept(tokens, completion) + completion["prompt_ids"]
            tokens = completion["prompt_ids"] + (completion["completion_ids"] or ())
        if call := completion["call"]:
            call["messages"] = messages = _kept(messages, call) + call["messages"]


def _kept(before: Trail[T], record: JSON) -> Trail[T]:
    kept = record.pop("kept", 0)
    if not 0 <= kept <= len(before):
        raise DataError(f"a model call keeps {kept} of {len(before)} that were there before")
    return before.first(kept)


def to_json(data: Task | Rollout | Completion) -> dict[str, JSON]:
    """The fields as a JSON object. Raises DataError for a value that could not be read back."""
    if isinstance(data, Task):
        fields = {**_fields(data), "kwargs": _marked(data.kwargs), "options": _marked(data.options)}
    elif isinstance(data, Rollout):
        fields = {"task": to_json(data.task), **_rollout_record(data, is_exact=False)}
    else:
        fields = _call_record(data, None)
    record: dict[str, JSON] = msgspec.to_builtins(fields, enc_hook=list)
    return record


def from_json(kind: Callable[..., T], record: Mapping[str, JSON], **missing: object) -> T:
    """The data of a record of `to_json`. missing: fields that the record lacks."""
    values: dict[str, object] = {}
    for name, value in record.items():
        if name in OPEN:
            values[name] = _unmarked(value)
        elif name in NESTED and value is not None:
            values[name] = from_json(NESTED[name], value)
        elif name in SEQUENCES:
            values[name] = tuple(from_json(SEQUENCES[name], item) for item in value)
        elif name in BYTES and isinstance(value, str):
            values[name] = BYTES[name](base64.b64decode(value, validate=True))
        elif name != "kept":
            # JSON has no tuples, and no field of data is a list.
            values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values, **missing)


def _marked_info(info: Mapping[str, object]) -> JSON:
    """As `_marked`; a value that no record can hold is its repr, with a warning.

    The info of a step is for people to read, and one value must not cost the episode.
    """
    try:
        return _marked(info)
    except DataError:
        return _marked({key: _value_or_text(key, value) for key, value in info.items()})


def _value_or_text(key: str, value: object) -> object:
    try:
        _marked(value)
    except DataError as error:
        # A warning of one place and text is shown once.
        warnings.warn(f"the info {key!r} is recorded as text: {error}", stacklevel=4)
        return hex(value) if isinstance(value, int) else repr(value)[:1000]
    return value


def _marked(value: object) -> JSON:
    """The value in JSON's types, with marks for other types."""
    # First, because np.float64 is a float too, and would lose its dtype.
    if isinstance(value, np.generic | np.ndarray):
        if value.dtype.kind not in _ARRAY_KINDS:
            raise DataError(
                f"cannot record {value!r} of dtype {value.dtype} so that it can be read back"
            )
        # `dtype.str` has the byte order and the length of texts, unlike the dtype's name.
        if isinstance(value, np.ndarray):
            return {"$array": [value.dtype.str, list(value.shape), value.ravel().tolist()]}
        return {"$scalar": [value.dtype.str, value.item()]}
    # Python writes no longer integers as decimal texts, and JSON has no others.
    if isinstance(value, int) and value.bit_length() > _LONGEST_INT:
        raise DataError(f"cannot record an integer of {value.bit_length()} bits")
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list):
        return [_marked(item) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [_marked(item) for item in value]}
    if isinstance(value, Mapping):
        # A key that begins with "$" makes it a "$dict", so that no text of an env reads as a mark.
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _marked(item) for key, item in value.items()}
        return {"$dict": [[_marked(key), _marked(item)] for key, item in value.items()]}
    raise DataError(
        f"cannot record {value!r} of {type(value).__name__} so that it can be read back"
    )


def _unmarked(value: JSON) -> Any:  # noqa: ANN401 - whatever was recorded
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$tuple" in value:
        return tuple(_unmarked(item) for item in value["$tuple"])
    if "$dict" in value:
        return {_unmarked(key): _unmarked(item) for key, item in value["$dict"]}
    if "$array" in value:
        dtype, shape, values = value["$array"]
        return np.array(values, dtype=dtype).reshape(shape)
    if "$scalar" in value:
        dtype, item = value["$scalar"]
        # The empty index turns an array without dimensions into a scalar of its dtype.
        return np.array(item, dtype=dtype)[()]
    return {key: _unmarked(item) for key, item in value.items()}


def task_key(task: Task) -> str:
    """Key of a task, 16 hex digits: equal when the same task comes again."""
    return _hash(_text([task.env_id, dict(task.kwargs), task.seed, task.options]))


def env_key(env_id: str, kwargs: Mapping[str, Any]) -> str:
    """Key of an environment with its arguments in any order; a list is equal to a tuple."""
    return _sorted_key(_text([env_id, dict(kwargs)]))


# Most rollouts of a run share their environment.
@lru_cache(maxsize=1024)
def _sorted_key(text: str) -> str:
    env_id, kwargs = json.loads(text)
    return _hash(_text([env_id, dict(sorted(kwargs.items()))]))


def _text(facts: Sequence[Any]) -> str:
    return _ENCODER.encode(facts)


def _hash(text: str) -> str:
    # A hash, because keys travel to actors and into checkpoints, and arguments may be long.
    return hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=8).hexdigest()


def plain_info(info: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """The numbers, flags and short texts of an info."""
    values = dict[str, bool | int | float | str]()
    for name, value in info.items():
        # NumPy's scalars become Python's, which any wire format knows.
        plain = value.item() if isinstance(value, np.generic) else value
        if _is_plain(plain) and _is_text(name):
            values[name] = plain
    return values


def _is_plain(value: object) -> bool:
    """True for values that every wire format can carry: integers have 64 bits."""
    if isinstance(value, str):
        return len(value) <= LONGEST_INFO_TEXT and _is_text(value)
    return isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63)


def _is_text(value: str) -> bool:
    """False for halves of surrogate pairs, which no encoding has bytes for."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)
