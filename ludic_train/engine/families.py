"""Architectures that the local engine computes exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers import PreTrainedModel

from ludic_train.errors import UnsupportedModel

if TYPE_CHECKING:
    from transformers import PretrainedConfig

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe")
# The other kinds of rotary embedding change with the length of the text.
ROPE_TYPES = ("default", "linear", "llama3", "yarn")


def causal_lm(model: PreTrainedModel) -> PreTrainedModel:
    """The language model itself, inside the adapters that wrap it."""
    inner = next((m for m in model.modules() if isinstance(m, PreTrainedModel)), None)
    if inner is None or inner.config.model_type not in FAMILIES:
        kind = type(model).__name__ if inner is None else inner.config.model_type
        raise UnsupportedModel(
            f"the local engine cannot run {kind!r} models, only {', '.join(FAMILIES)}; "
            "serve others with vLLM"
        )
    return inner


def max_positions(config: PretrainedConfig) -> int:
    """Tokens of the longest sequence that is computed exactly: inside any sliding window.

    Raises UnsupportedModel for a rotary embedding that depends on the length of the text.
    """
    # These give a position the same angle in every text, so cosines can be computed in advance.
    rope = (config.rope_parameters or {}).get("rope_type", "default")
    if rope not in ROPE_TYPES:
        raise UnsupportedModel(f"rotary embedding {rope!r} is none of {', '.join(ROPE_TYPES)}")
    window: int | None = None if config.model_type == "llama" else config.sliding_window
    positions: int = config.max_position_embeddings
    return positions if window is None else min(positions, window)
