"""Tokens of a small model, by the local engine and by `generate`."""

from __future__ import annotations

from itertools import count

from sampler import endless, make_load, sample_ours, sample_theirs

from harness.rates import Work
from ludic_train.engine.client import LocalChatClient
from ludic_train.models.chat_template import render_chat

# Of the usual completions.
PART = 16


def tokens(model: str, load: str) -> Work:
    """Tokens sampled by the local engine, of new prompts each time: it caches those it has had."""
    client = LocalChatClient(*endless(model))
    for round_ in count():
        yield sample_ours(client, make_load(load, PART, round_))


def tokens_of_generate(model: str, load: str) -> Work:
    """Tokens sampled by transformers."""
    causal, tokenizer = endless(model)
    for round_ in count():
        requests = make_load(load, PART, round_)
        prompts = [render_chat(tokenizer, dialog) for dialog in requests.dialogs]
        yield sample_theirs(causal, prompts, requests)
