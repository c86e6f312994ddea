"""The end of an episode in a word, and the cause of it: model, environment or infrastructure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from traceback import walk_tb
from typing import Any

import numpy as np

from ludic_gym.errors import Blame, LudicError
from ludic_gym.policies.chat import MAX_LENGTH
from ludic_gym.rollout.pool import EnvPool, call
from ludic_gym.types import Decision, Episode, Rollout

TOO_LONG = "too_long"
# Texts of `info["error"]` begin with the class of the error.
_REPORTED = ("ClientError", "SandboxError", "NoSandbox")
# An error that passed through one of these is the env's, whatever its class.
_OF_ENVS = {call.__code__, EnvPool.make.__code__}


def outcome(rollout: Rollout) -> str:
    """The end of an episode by the model, in a word.

    The env's own name (`info["outcome"]`, such as "draw"), else "success" or "failure"; "ended" if
    the env says nothing of success. A reply that ended the episode without a legal action is
    "filtered", "refused", "cut_off", "empty" or "illegal". "too_long": the dialog left no room for
    a reply. "truncated": by a limit of turns, or another reason that the last info has.
    """
    if not rollout.steps:
        return "failure"
    last, info = rollout.steps[-1], last_info(rollout)
    named = info["outcome"] if isinstance(info.get("outcome"), str) else ""
    if info.get("truncation_reason") == MAX_LENGTH:
        return TOO_LONG
    success = succeeded(rollout)
    if success:
        return named or "success"
    if last.truncated:
        return named or "truncated"
    # To a game an empty reply is an illegal move; the reply itself says more.
    fault = _fault_of_reply(last.decision) if last.illegal or not named else ""
    unnamed = "illegal" if last.illegal else "failure" if success is False else "ended"
    return fault or named or unnamed


def _fault_of_reply(decision: Decision) -> str:
    """The reason for which the last reply of a turn says nothing, or not all; "" for none."""
    if not decision.completions:
        return ""
    reason = decision.completions[-1].finish_reason
    words = {"content_filter": "filtered", "refusal": "refused", "length": "cut_off"}
    return words.get(reason) or ("empty" if decision.empty else "")


def succeeded(rollout: Rollout) -> bool | None:
    """True for an end that the env calls a success, False for any other.

    None where the env terminated the episode and says nothing of success, as many of other packages
    do. A truncated episode without a word of it is no success.
    """
    info = last_info(rollout)
    if "success" in info:
        # Any other value, such as a text, is a mistake of the env and no success.
        return isinstance(info["success"], bool | np.bool_) and bool(info["success"])
    return None if rollout.steps and rollout.steps[-1].terminated else False


def last_info(rollout: Rollout) -> Mapping[str, Any]:
    """The info of the last step; empty without steps."""
    return rollout.steps[-1].info if rollout.steps else {}


def blame_of(error: BaseException) -> Blame:
    """The cause of an episode that ended in an error.

    "model": its prompt had no room in the context. "environment": an env raised it or did not
    return in time, or its grader reached no verdict. "infrastructure": all else, such as a client,
    a sandbox, a time limit, or the code of a policy.
    """
    if isinstance(error, LudicError) and error.blame is not None:
        return error.blame
    if isinstance(error, ConnectionError | TimeoutError | MemoryError):
        return "infrastructure"
    return "environment" if _raised_in_env(error) else "infrastructure"


def failed_episode(episode: Episode, error: Exception) -> Episode:
    """The episode without rollouts, ended by an error that came after it."""
    text = f"{type(error).__name__}: {error}"
    return replace(episode, rollouts=(), error=text, blame=blame_of(error))


def blame_reported(text: str) -> Blame:
    """The cause of an end that an env reports itself. text: its `info["error"]`."""
    return "infrastructure" if text.startswith(_REPORTED) else "environment"


def _raised_in_env(error: BaseException) -> bool:
    """True if the error, or one that it was raised from, came out of a call of an env."""
    frames = (frame for each in _causes(error) for frame, _ in walk_tb(each.__traceback__))
    return any(frame.f_code in _OF_ENVS for frame in frames)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
