"""The model that learns, and how it plays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedTokenizerBase

from ludic_gym.contexts import Context, FullDialog, LatestObservation
from ludic_gym.policies import ChatPolicy
from ludic_gym.types import Env, Rollout
from ludic_train.inference import EmbeddedChatClient
from ludic_train.model import load_model, make_tiny_model, make_tokenizer
from ludic_train.publishers import InProcessPublisher


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """A model in training, and the client and policies that sample from its live params.

    new_context: what prompts are made of. system_prompt: as `ChatPolicy` takes it.
    """

    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    client: EmbeddedChatClient
    new_context: Callable[[], Context]
    system_prompt: str | None

    @property
    def publisher(self) -> InProcessPublisher:
        """Names the versions of the params for the client."""
        return InProcessPublisher(self.client)

    def make_policy(self, env: Env) -> ChatPolicy:
        """A policy for one env."""
        return ChatPolicy(self.client, self.new_context(), self.system_prompt)


def learner_from_nothing(
    demonstrations: Sequence[Rollout], *, reply: str = "{}", seed: int
) -> Learner:
    """A randomly initialised model of 0.1M parameters that sees the latest observation alone.

    Its tokenizer merges the words of the demonstrations and of `reply`, which is what it will be
    taught to write for an action.
    """
    steps = [step for rollout in demonstrations for step in rollout.steps]
    texts = [step.observation for step in steps[:2000]]
    texts += [reply.replace("{}", step.decision.action or "") for step in steps[:2000]]
    tokenizer = make_tokenizer(texts)
    model = make_tiny_model(tokenizer, seed=seed)
    return Learner(
        model=model,
        tokenizer=tokenizer,
        client=EmbeddedChatClient(model, tokenizer, seed=seed),
        new_context=LatestObservation,
        system_prompt="",
    )


def learner_from_model(name: str, *, lora_rank: int, seed: int) -> Learner:
    """A model from a folder or hub, trained by LoRA; it sees the env's prompt and all turns."""
    model, tokenizer = load_model(name, lora_rank=lora_rank)
    return Learner(
        model=model,
        tokenizer=tokenizer,
        client=EmbeddedChatClient(model, tokenizer, seed=seed),
        new_context=FullDialog,
        system_prompt=None,
    )
