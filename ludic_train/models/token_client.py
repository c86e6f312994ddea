"""A client of vLLM servers with all that it must know of the model's template and tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_train.models.chat_profile import chat_profile
from ludic_train.models.chat_template import chat_renderer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def token_client(
    servers: str | Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    model: str | None = None,
    **options: Any,  # noqa: ANN401 - of VLLMTokenClient
) -> VLLMTokenClient:
    """A `VLLMTokenClient` of servers of the tokenizer's model.

        client = lt.token_client("http://localhost:8000", tokenizer, seeds=False)

    Prompts are the chat template's, tool calls are read in its format, and replies stop at all of
    the profile's stop ids. model, options: of `VLLMTokenClient`.
    """
    render, profile = chat_renderer(tokenizer), chat_profile(tokenizer)
    return VLLMTokenClient(
        servers,
        render,
        model,
        read_calls=render.read_calls,
        stop_ids=profile.stop_ids,
        vocab_size=profile.vocab_size,
        **options,
    )
