"""Episodes as JSON for the page, without fields that it does not use."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ludic_gym.bench.result import Price, Score, call_cost, token_counts
from ludic_gym.errors import MissingPackage
from ludic_gym.packages import find_plugins, load_plugin
from ludic_gym.records import kept_messages, kept_tokens
from ludic_gym.types import Completion, Episode, ModelCall, Rollout, Step

JSON = Any
COLUMNS = ("index", "success", "reward", "outcome", "turns", "cost", "cut_off")
CHUNK_CHARS = 400_000
# JavaScript rounds larger whole numbers, seeds included.
LARGEST_EXACT = 2**53
# The text of each token, given the ids of a completion or a prompt.
TokenTexts = Callable[[Sequence[int]], list[str]]


def transcript(
    episode: Episode, token_texts: TokenTexts | None = None, *, price: Price | None = None
) -> JSON:
    """The episode for the page: env, seed, arguments, error, and its rollouts with all turns.

    token_texts: texts of token ids; None shows tokens by their ids.
    price: for servers that state no cost.
    """
    task = episode.task
    return {
        "env": task.env_id,
        "index": episode.index,
        # As text, because JavaScript rounds large whole numbers.
        "seed": str(task.seed),
        "kwargs": _plain(task.kwargs),
        "sampling": _plain(asdict(task.sampling)),
        "error": episode.error,
        "rollouts": [_rollout(rollout, token_texts, price) for rollout in episode.rollouts],
    }


def chunks(rows: Iterable[tuple[int, str]]) -> Iterator[dict[str, JSON]]:
    """Transcripts in pieces of consecutive rows: "start" (the first row), "count" and "data".

    rows: the row and the JSON text of each transcript, in ascending order.
    data: the JSON array of the piece's transcripts, as zlib stream in base64. The page inflates a
        piece when one of its transcripts is opened. It has up to 400,000 characters before
        compression, or one longer transcript.
    """
    start, texts, size = 0, list[str](), 0
    for row, text in rows:
        # The number of rows is not stored, so a gap between two rows ends the piece too.
        if texts and (size + len(text) > CHUNK_CHARS or row != start + len(texts)):
            yield _chunk(start, texts)
            texts, size = [], 0
        start = start if texts else row
        texts.append(text)
        size += len(text)
    if texts:
        yield _chunk(start, texts)


def _chunk(start: int, texts: Sequence[str]) -> dict[str, JSON]:
    packed = base64.b64encode(zlib.compress(f"[{','.join(texts)}]".encode())).decode()
    return {"start": start, "count": len(texts), "data": packed}


def columns(
    envs: Sequence[int],
    nth: Sequence[int | None],
    scores: Sequence[Score],
    seconds: Sequence[float | None],
) -> JSON:
    """The rows of the page as a list per field: names once, and not once per row.

    envs: index of each row's env. nth: number of the sample of a task, or of the update, if known.
    scores: of each row. seconds: duration of each episode, None if unknown.
    """
    return {
        "env": envs,
        "nth": nth,
        # JavaScript rounds large whole numbers, by which two tasks could become one.
        "task": [str(score.task) for score in scores],
        # An error of the model, such as a prompt that is too long, is an end like others.
        "error": ["" if score.counts else score.error for score in scores],
        "tokens": [score.completion_tokens for score in scores],
        "seconds": seconds,
        **{name: [getattr(score, name) for score in scores] for name in COLUMNS},
    }


def _rollout(rollout: Rollout, token_texts: TokenTexts | None, price: Price | None) -> JSON:
    before: Completion | None = None
    steps = []
    for step in rollout.steps:
        completions = []
        for completion in step.decision.completions:
            shown = _completion(completion, before, token_texts)
            if completion.call is not None:
                shown["call"] = _call(completion, completion.call, before, price)
            completions.append(shown)
            before = completion
        steps.append({**_step(step), "completions": completions})
    return {
        "agent": rollout.agent,
        "player": rollout.player,
        "reward": rollout.total_reward,
        "final": rollout.final_observation,
        "steps": steps,
    }


def _step(step: Step) -> JSON:
    decision = step.decision
    return {
        "observation": step.observation,
        "action": decision.action,
        "feedback": decision.feedback,
        "reward": step.reward,
        "ended": "terminated" if step.terminated else "truncated" if step.truncated else "",
        "info": _plain(step.info),
    }


def _completion(
    completion: Completion, before: Completion | None, token_texts: TokenTexts | None
) -> dict[str, JSON]:
    """A model call. before: the one before it, whose tokens are not shown again."""
    ids, logprobs = completion.completion_ids, completion.logprobs
    # Without log-probs there is nothing to colour, and the text is enough.
    tokens: list[str] | None = None
    if ids is not None and logprobs is not None:
        tokens = token_texts(ids) if token_texts else [f"{number} " for number in ids]
    kept = kept_tokens(completion, before)
    prompt = (completion.prompt_ids or ())[kept:]
    prompt_tokens, completion_tokens = token_counts(completion)
    return {
        "text": completion.text,
        "reasoning": completion.reasoning,
        "finish": completion.finish_reason,
        "version": completion.policy_version,
        "counts": [prompt_tokens, completion_tokens],
        "tokens": tokens,
        "decoded": token_texts is not None,
        "logprobs": None if tokens is None else [round(lp, 3) for lp in logprobs or ()],
        "kept": kept,
        "prompt": "".join(token_texts(prompt)) if token_texts and prompt else "",
        "tools": [{"name": c.name, "arguments": c.arguments} for c in completion.tool_calls],
    }


def _call(
    completion: Completion, call: ModelCall, before: Completion | None, price: Price | None
) -> JSON:
    """The request as it was sent. before: the model call before, whose messages are left out."""
    kept = kept_messages(call, before)
    return {
        "model": call.model,
        "fingerprint": call.fingerprint,
        "kept": kept,
        "messages": [dict(message) for message in call.messages[kept:]],
        "parameters": _plain(call.parameters),
        "usage": _plain(call.usage),
        "seconds": round(call.seconds, 3),
        "cost": call_cost(completion, price),
    }


def _plain(values: Mapping[str, Any]) -> JSON:
    return {key: _json_value(value) for key, value in values.items()}


def _json_value(value: object) -> JSON:
    """A value that JavaScript has unchanged, in lists and mappings too; any other as its repr."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return _plain(value)
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    if isinstance(value, int) and abs(value) > LARGEST_EXACT:
        return repr(value)
    # JSON has no nan and no infinities.
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    # Not isinstance: numpy's floats are floats, but print themselves by another name.
    return value if value is None or type(value) in (bool, int, float, str) else repr(value)


def token_texts_from(folder: Path) -> TokenTexts:
    """The texts of tokens, from the tokenizer in a model's folder.

    Raises ConfigError if there is none, MissingPackage without the trainer, which reads it.

        texts = token_texts_from(Path("runs/tic-tac-toe/model"))
        texts([9707, 1879])  # ["Hello", " world"]
    """
    # An entry point, because tokenizers come with torch, which this package must not import.
    readers = find_plugins("ludic.tokens")
    if "texts" not in readers:
        raise MissingPackage("--tokenizer needs the trainer: pip install 'ludic-gym[train]'")
    texts: TokenTexts = load_plugin(readers["texts"])(folder)
    return texts
