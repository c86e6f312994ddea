"""The model that learns, and how it plays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn
from transformers import PreTrainedTokenizerBase

from ludic_gym.types import MakePolicy, Rollout
from ludic_train.inference import EmbeddedChatClient
from ludic_train.inference.saved import PolicySpec, model_and_spec, policies
from ludic_train.model import load_model, make_tiny_model, make_tokenizer
from ludic_train.publishers import InProcessPublisher

# Texts that a tokenizer is made from; more do not change what it merges.
TOKENIZER_STEPS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """A model in training, the client that samples from its live params, and how it is asked."""

    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    client: EmbeddedChatClient
    spec: PolicySpec

    @property
    def publisher(self) -> InProcessPublisher:
        """Names the versions of the params for the client."""
        return InProcessPublisher(self.client)

    @property
    def make_policy(self) -> MakePolicy:
        """Makes policies of the live params."""
        return policies(self.client, self.spec)


def learner_from_nothing(
    demonstrations: Sequence[Rollout], spec: PolicySpec, *, reply: str = "{}", seed: int
) -> Learner:
    """A randomly initialised model of 0.1M parameters.

    Its tokenizer merges the words of the demonstrations and of `reply`, what it will be taught to
    write for an action.
    """
    steps = [step for rollout in demonstrations for step in rollout.steps][:TOKENIZER_STEPS]
    texts = [step.observation for step in steps]
    texts += [reply.replace("{}", step.decision.action or "") for step in steps]
    tokenizer = make_tokenizer(texts)
    model = make_tiny_model(tokenizer, seed=seed)
    client = EmbeddedChatClient(model, tokenizer, seed=seed)
    return Learner(model=model, tokenizer=tokenizer, client=client, spec=spec)


def learner_from_model(name: str, *, max_tokens: int, lora_rank: int, seed: int) -> Learner:
    """A model whose LoRA adapters learn: from a run's folder, asked as in that run, or any other.

    A model from its own folder or the hub sees the env's system prompt and all turns.
    """
    folder, spec = model_and_spec(Path(name)) if Path(name).is_dir() else (name, PolicySpec())
    spec = replace(spec, max_tokens=max_tokens)
    model, tokenizer = load_model(folder, lora_rank=lora_rank)
    client = EmbeddedChatClient(model, tokenizer, seed=seed)
    return Learner(model=model, tokenizer=tokenizer, client=client, spec=spec)
