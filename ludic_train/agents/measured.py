"""Agent programs with a model of this process, for benchmarks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import torch

from ludic_gym.parsers import named_parser
from ludic_gym.types import MakePolicy
from ludic_train.agents.agents import AgentPolicies
from ludic_train.agents.gateway import Gateway
from ludic_train.engine.client import LocalChatClient, model_folder
from ludic_train.engine.policy_spec import PolicySpec, model_and_spec
from ludic_train.models.load import load_model


def local_gateway(
    name: str | Path, *, host: str = "127.0.0.1", port: int = 0, deadline_s: float = 600.0
) -> tuple[Gateway, PolicySpec]:
    """A gateway to a model that this process loads, and how the model was prompted in training.

    name: a run folder, a model's folder, a name of `ludic model`, or "hf/NAME".
    Raises ModelNotFound for anything else.
    """
    folder, spec = model_and_spec(model_folder(name))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, tokenizer = load_model(folder, device=device)
    # It only samples: gradients would take memory.
    client = LocalChatClient(model.eval().requires_grad_(False), tokenizer)
    gateway = Gateway(
        client,
        tokenizer,
        model=str(name),
        max_positions=client.max_positions,
        deadline_s=deadline_s,
        host=host,
        port=port,
    )
    if spec.max_tokens is not None:
        gateway.max_tokens = spec.max_tokens
    return gateway, spec


@asynccontextmanager
async def open_agent(name: str, agent: str) -> AsyncIterator[MakePolicy]:
    """A function that builds policies of the program, usable while the context lasts.

    agent: a command, or "module:function". The parser is the one that the model was trained with.
    Raises ModelNotFound, and ConfigError for a function that does not exist.
    """
    gateway, spec = local_gateway(name)
    parser = named_parser(spec.parser) if spec.parser else None
    policies = AgentPolicies.named(gateway, agent, parser)
    async with gateway.running():
        yield policies
