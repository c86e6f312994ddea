"""Checks that only ask: the server stays as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from ludic_gym.clients.vllm_chat import VLLMChatClient
from ludic_gym.clients.vllm_tokens import VLLMTokenClient
from ludic_gym.types import Completion, Message, Sampling
from ludic_train.doctor.findings import Finding, judged
from ludic_train.doctor.scores import differences, tolerance
from ludic_train.models.chat_template import render_chat
from ludic_train.trainer.forward import packs_exactly

QUESTIONS = ("What is 12 + 30?", "Name a colour.", "Count to five.", "Is 7 even or odd? Say why.")
TOKENS = 24
RESTART = "start the server with `ludic serve`, or with "


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """A server, and the model that it should be serving.

    config: vLLM's, as /server_info tells it; empty where it does not.
    """

    url: str
    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    client: VLLMTokenClient
    config: Mapping[str, Any]

    @property
    def tolerance(self) -> float:
        """The mean difference of log-probs, in nats, that rounding explains."""
        said = str(self.config.get("model_config", {}).get("dtype", "")).removeprefix("torch.")
        served: torch.dtype = getattr(torch, said or "float32")
        return tolerance(served, next(self.model.parameters()).dtype)

    def prompt(self, question: str) -> list[int]:
        """A question as the trainer renders it."""
        return render_chat(self.tokenizer, [asked(question)])

    async def samples(self, sampling: Sampling) -> list[Completion]:
        """An answer to each question."""
        calls = (self.client.continued(self.prompt(q), sampling) for q in QUESTIONS)
        return list(await asyncio.gather(*calls))


Check = Callable[[Patient], Awaitable[Finding]]


def asked(question: str) -> Message:
    """A user's message."""
    return {"role": "user", "content": question}


async def check_flags(patient: Patient) -> Finding:
    """Whether the server was started with what training needs."""
    if not patient.config:
        remedy = f"{RESTART}VLLM_SERVER_DEV_MODE=1 in its environment"
        return judged("flags", False, "the server does not tell its flags", remedy)
    model = patient.config["model_config"]
    transfer = patient.config.get("weight_transfer_config") or {}
    wrong = {}
    if model["logprobs_mode"] != "processed_logprobs":
        wrong["--logprobs-mode processed_logprobs"] = f"logprobs_mode {model['logprobs_mode']}"
    if model["generation_config"] != "vllm":
        wrong["--generation-config vllm"] = f"generation_config {model['generation_config']}"
    if not transfer:
        wrong["""--weight-transfer-config '{"backend": "ludic"}'"""] = "no way for params to come"
    found = ", ".join(wrong.values()) or f"params come by {transfer.get('backend')!r}"
    return judged("flags", not wrong, found, RESTART + " ".join(wrong))


async def check_round_trip(patient: Patient) -> Finding:
    """Whether the server's chat template and tokenizer are the trainer's."""
    async with VLLMChatClient(patient.url) as chat:
        said = await chat.complete([asked(QUESTIONS[0])], Sampling(max_tokens=TOKENS))
    ours = tuple(patient.prompt(QUESTIONS[0]))
    if said.prompt_ids != ours:
        found = f"the server renders {said.prompt_ids} where the trainer has {ours}"
        return judged("tokens", False, found, "serve the folder that --model names")
    text = patient.tokenizer.decode(said.completion_ids or (), skip_special_tokens=True)
    return judged(
        "tokens",
        text == said.text,
        f"prompt of {len(ours)} tokens alike; {said.text!r} read as {text!r}",
        "the tokenizers differ: serve the folder that --model names",
    )


def parity(name: str, sampling: Sampling) -> Check:
    """A check that log-probs at this sampling are those of the trainer."""

    async def check(patient: Patient) -> Finding:
        completions = await patient.samples(sampling)
        off = differences(patient.model, completions)
        found = f"mean {off.mean():.1e}, largest {off.max():.1e} nats over {len(off)} tokens"
        remedy = (
            "the server has other params, or other flags: see the checks above; train the model "
            "that is served, in the precision that it is served in"
        )
        return judged(name, bool(off.mean() <= patient.tolerance), found, remedy)

    return check


async def check_seeds(patient: Patient) -> Finding:
    """Whether equal seeds give equal tokens, and others others. One at a time."""
    prompt = patient.prompt(QUESTIONS[0])
    sampling = Sampling(max_tokens=TOKENS)
    seeded = [replace(sampling, seed=seed) for seed in (1, 1, 2)]
    one, again, other = [(await patient.client.continued(prompt, s)).completion_ids for s in seeded]
    same, differ = one == again, one != other
    found = f"equal seeds {'agree' if same else 'differ'}, others {'differ' if differ else 'agree'}"
    remedy = "groups of equal samples teach nothing: let requests without seeds go out"
    return judged("seeds", same and differ, found, remedy)


async def check_packing(patient: Patient) -> Finding:
    """Whether items that share a row in the trainer leave each other alone."""
    device = str(next(patient.model.parameters()).device)
    exact = packs_exactly(patient.model, device)
    found = "items that share a row " + ("do not see each other" if exact else "see each other")
    remedy = "nothing: the trainer pads this architecture instead; it costs time only"
    return judged("packing", exact, found, remedy)


SAMPLINGS = {
    "log-probs at T=1": Sampling(max_tokens=TOKENS),
    "log-probs at T=0.7": Sampling(max_tokens=TOKENS, temperature=0.7),
    "log-probs, top_p=0.9": Sampling(max_tokens=TOKENS, top_p=0.9),
}
CHECKS: Sequence[tuple[str, Check]] = (
    ("flags", check_flags),
    ("tokens", check_round_trip),
    *((name, parity(name, sampling)) for name, sampling in SAMPLINGS.items()),
    ("seeds", check_seeds),
    ("packing", check_packing),
)
