"""Episodes as JSON for the page, without fields that it does not use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ludic_gym.bench.result import Score
from ludic_gym.errors import MissingPackage
from ludic_gym.plugins import find_plugins, load_plugin
from ludic_gym.types import Completion, Episode, Rollout, Step

JSON = Any
COLUMNS = ("index", "success", "reward", "outcome", "turns")
CHUNK_CHARS = 400_000
# JavaScript rounds larger whole numbers, seeds included.
LARGEST_EXACT = 2**53
# The text of each token, given the ids of a completion or a prompt.
TokenTexts = Callable[[Sequence[int]], list[str]]


def transcript(episode: Episode, token_texts: TokenTexts | None = None) -> JSON:
    """The episode for the page: env, seed, arguments, error, and its rollouts with all turns.

    token_texts: texts of token ids; None shows tokens by their ids.
    """
    task = episode.task
    return {
        "env": task.env_id,
        "index": episode.index,
        # As text, because JavaScript rounds large whole numbers.
        "seed": str(task.seed),
        "kwargs": _plain(task.kwargs),
        "error": episode.error,
        "rollouts": [_rollout(rollout, token_texts) for rollout in episode.rollouts],
    }


def chunks(
    rows: Iterable[tuple[int, Episode]], token_texts: TokenTexts | None
) -> Iterator[dict[str, JSON]]:
    """Transcripts by row, in pieces of consecutive rows: the first row, and their JSON.

    The page parses a piece as a whole, when one of its transcripts is opened.
    rows: in ascending order. A piece has up to 400,000 characters, or one longer transcript.
    """
    start, texts, size = 0, list[str](), 0
    for row, episode in rows:
        text = json.dumps(transcript(episode, token_texts))
        # The number of rows is not stored, so a gap between two rows ends the piece too.
        if texts and (size + len(text) > CHUNK_CHARS or row != start + len(texts)):
            yield {"start": start, "episodes": texts}
            texts, size = [], 0
        start = start if texts else row
        texts.append(text)
        size += len(text)
    if texts:
        yield {"start": start, "episodes": texts}


def columns(envs: Sequence[int], nth: Sequence[int], scores: Sequence[Score]) -> JSON:
    """The rows of the page as a list per field: names once, and not once per row.

    envs: index of each row's env. nth: number of the sample of a task, or of the update.
    scores: of each row.
    """
    return {
        "env": envs,
        "nth": nth,
        # JavaScript rounds large whole numbers, by which two tasks could become one.
        "task": [str(score.task) for score in scores],
        "error": [score.error or "" for score in scores],
        "tokens": [score.completion_tokens for score in scores],
        **{name: [getattr(score, name) for score in scores] for name in COLUMNS},
    }


def _rollout(rollout: Rollout, token_texts: TokenTexts | None) -> JSON:
    return {
        "agent": rollout.agent,
        "player": rollout.player,
        "reward": rollout.total_reward,
        "final": rollout.final_observation,
        "steps": [_step(step, token_texts) for step in rollout.steps],
    }


def _step(step: Step, token_texts: TokenTexts | None) -> JSON:
    decision = step.decision
    return {
        "observation": step.observation,
        "action": decision.action,
        "feedback": decision.feedback,
        "reward": step.reward,
        "ended": "terminated" if step.terminated else "truncated" if step.truncated else "",
        "info": _plain(step.info),
        "completions": [_completion(c, token_texts) for c in decision.completions],
    }


def _completion(completion: Completion, token_texts: TokenTexts | None) -> JSON:
    ids, logprobs = completion.completion_ids, completion.logprobs
    # Without log-probs there is nothing to colour, and the text is enough.
    tokens: list[str] | None = None
    if ids is not None and logprobs is not None:
        tokens = token_texts(ids) if token_texts else [f"{number} " for number in ids]
    prompt = completion.prompt_ids
    return {
        "text": completion.text,
        "finish": completion.finish_reason,
        "version": completion.policy_version,
        "tokens": tokens,
        "decoded": token_texts is not None,
        "logprobs": None if tokens is None else [round(lp, 3) for lp in logprobs or ()],
        "prompt": "".join(token_texts(prompt)) if token_texts and prompt else "",
        "tools": [{"name": c.name, "arguments": c.arguments} for c in completion.tool_calls],
    }


def _plain(values: Mapping[str, Any]) -> JSON:
    return {key: _json_value(value) for key, value in values.items()}


def _json_value(value: object) -> JSON:
    """A value that JavaScript has unchanged, any other as its repr."""
    if isinstance(value, int) and abs(value) > LARGEST_EXACT:
        return repr(value)
    return value if isinstance(value, (bool, int, float, str)) else repr(value)


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
