"""Episodes as JSON for the page, without fields that it does not use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ludic_gym.errors import ConfigError
from ludic_gym.plugins import find_plugins, load_plugin
from ludic_gym.types import Completion, Episode, Rollout, Step

JSON = Any
# JavaScript rounds larger whole numbers, seeds included.
LARGEST_EXACT = 2**53
# The text of each token, given the ids of a completion or a prompt.
TokenTexts = Callable[[Sequence[int]], list[str]]


def transcript(episode: Episode, token_texts: TokenTexts | None = None) -> JSON:
    """The episode for the page. token_texts: None shows tokens by their ids."""
    task = episode.task
    return {
        "env": task.env_id,
        "index": episode.index,
        "seed": str(task.seed),
        "kwargs": _plain(task.kwargs),
        "error": episode.error,
        "rollouts": [_rollout(rollout, token_texts) for rollout in episode.rollouts],
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
    ended = "terminated" if step.terminated else "truncated" if step.truncated else ""
    return {
        "observation": step.observation,
        "action": decision.action,
        "feedback": decision.feedback,
        "reward": step.reward,
        "ended": ended,
        "info": {key: _json_value(value) for key, value in step.info.items()},
        "completions": [_completion(c, token_texts) for c in decision.completions],
    }


def _completion(completion: Completion, token_texts: TokenTexts | None) -> JSON:
    ids, logprobs = completion.completion_ids, completion.logprobs
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


def _plain(kwargs: Mapping[str, Any]) -> JSON:
    return {key: _json_value(value) for key, value in kwargs.items()}


def _json_value(value: object) -> JSON:
    """A value that JavaScript has unchanged, any other as its repr."""
    if isinstance(value, int) and abs(value) > LARGEST_EXACT:
        return repr(value)
    return value if isinstance(value, (bool, int, float, str)) else repr(value)


def token_texts_from(folder: Path) -> TokenTexts:
    """The texts of tokens, from the tokenizer in a model's folder.

    Raises ConfigError if there is none, or without the trainer, which reads it.
    """
    readers = find_plugins("ludic.tokens")
    if "texts" not in readers:
        raise ConfigError("--tokenizer needs the trainer: pip install 'ludic-gym[train]'")
    texts: TokenTexts = load_plugin(readers["texts"])(folder)
    return texts
