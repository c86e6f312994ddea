"""Tokens of a small model, by the local engine and by `generate`."""

from __future__ import annotations

from sampler import endless, make_loads, sample_ours, sample_theirs

from harness.rates import Work
from ludic_train.inference.client import LocalChatClient
from ludic_train.models.chat_template import render_chat

# Of the usual completions.
PART = 16


def tokens(model: str, load: str) -> Work:
    """Tokens sampled by the local engine."""
    client, requests = LocalChatClient(*endless(model)), make_loads(PART)[load]
    while True:
        yield sample_ours(client, requests)


def tokens_of_generate(model: str, load: str) -> Work:
    """Tokens sampled by transformers."""
    causal, tokenizer = endless(model)
    requests = make_loads(PART)[load]
    prompts = [render_chat(tokenizer, dialog) for dialog in requests.dialogs]
    while True:
        yield sample_theirs(causal, prompts, requests)
