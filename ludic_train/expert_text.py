"""Experts of the tokens of a completion as text: a .npy file in base64, as vLLM sends it."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ludic_train.errors import UntrainableRollout

UNKNOWN = -1
"""In the place of an expert: a token of which it is not known."""


def experts_from_base64(text: str) -> NDArray[np.int16]:
    """The experts of each token, [tokens, layers, k]. Raises UntrainableRollout for other text."""
    try:
        array = np.load(io.BytesIO(base64.b64decode(text, validate=True)), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise UntrainableRollout(f"routed_experts is no .npy file in base64: {error}") from error
    if not isinstance(array, np.ndarray) or array.ndim != 3 or array.dtype.kind not in "iu":
        raise UntrainableRollout(
            f"routed_experts holds {getattr(array, 'dtype', type(array))} of shape "
            f"{getattr(array, 'shape', None)}; integers [tokens, layers, k] are expected"
        )
    if array.size and not UNKNOWN <= int(array.min()) <= int(array.max()) < 2**15:
        raise UntrainableRollout(f"experts from {array.min()} to {array.max()} in routed_experts")
    return array.astype(np.int16)


def experts_to_base64(experts: NDArray[np.int16]) -> str:
    """The text of these experts, [tokens, layers, k].

    >>> experts = np.array([[[0, 3]], [[1, 2]]], np.int16)
    >>> experts_from_base64(experts_to_base64(experts)).tolist()
    [[[0, 3]], [[1, 2]]]
    """
    file = io.BytesIO()
    np.save(file, experts, allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode()


def experts_of_calls(calls: Sequence[tuple[int, str]], length: int) -> NDArray[np.int16]:
    """Experts of a row of `length` tokens, [length, layers, k].

    calls: number of tokens that each call of the row read, and the text of their experts.
    Raises UntrainableRollout for another number of experts than tokens.
    """
    parts: list[NDArray[np.int16]] = []
    num_covered = 0
    for read, text in calls:
        experts = experts_from_base64(text)
        if len(experts) != read or (parts and experts.shape[1:] != parts[0].shape[1:]):
            raise UntrainableRollout(
                f"experts of shape {experts.shape} came with prompt and completion of {read + 1} "
                f"tokens: those of {read} are expected, in the same layers in each call"
            )
        # A later call reads the same tokens again, but these were sampled by the first one.
        parts.append(experts[num_covered:])
        num_covered = read
    # No expert has read the last token.
    last = np.full((length - num_covered, *parts[0].shape[1:]), UNKNOWN, np.int16)
    return np.concatenate([*parts, last])
