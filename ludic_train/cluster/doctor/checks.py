"""Checks by requests alone, which leave the server as it is.

A check compares the server's tokens and log-probs with those of the trainer's model.
Each is a coroutine that takes a Patient and returns a Finding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ludic_gym.clients.vllm import VLLMChatClient, VLLMTokenClient
from ludic_gym.sampling import packed_masks
from ludic_gym.types import Completion, Message, Sampling
from ludic_train.engine.sampling import draws_of, log_distribution
from ludic_train.models.chat_profile import chat_profile
from ludic_train.models.chat_template import render_chat
from ludic_train.models.modules import vocabulary_of

QUESTIONS = ("What is 12 + 30?", "Name a colour.", "Count to five.", "Is 7 even or odd? Say why.")
# Tokens per completion: enough to average over, and a second of sampling on a CPU.
TOKENS = 24
LOW_PRECISION = {torch.bfloat16, torch.float16}
RESTART = "start the server with `ludic serve`, or with "


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of a check.

    check: its name. found: the measured values, in one line.
    remedy: for a bad one, or the reason for which it was skipped.
    """

    check: str
    verdict: Literal["good", "bad", "skipped"]
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """A server, and the model that it should serve.

    url: address without "/v1". model, tokenizer: the trainer's, with the params to expect.
    client: sends token ids to the server.
    config: vLLM's own, from /server_info; empty where the server has no such route.
    """

    url: str
    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    client: VLLMTokenClient
    config: Mapping[str, Any]

    @property
    def tolerance(self) -> float:
        """The mean difference of log-probs, in nats, that rounding explains.

        The less precise of the two dtypes decides: that of the server or that of the model.
        """
        name = str(self.config.get("model_config", {}).get("dtype", "")).removeprefix("torch.")
        served: torch.dtype = getattr(torch, name or "float32")
        dtypes = {served, next(self.model.parameters()).dtype}
        # bfloat16 has 8 significant bits: a logit near 20 is off by up to 0.06.
        return 0.05 if dtypes & LOW_PRECISION else 1e-4

    def prompt(self, question: str) -> list[int]:
        """Token ids of a question, as the trainer renders it."""
        return render_chat(self.tokenizer, [user_message(question)])

    async def samples(self, sampling: Sampling) -> list[Completion]:
        """A completion for each of QUESTIONS, sampled in parallel.

        Raises ClientError for a request that fails.
        """
        calls = (self.client.continued(self.prompt(q), sampling) for q in QUESTIONS)
        return list(await asyncio.gather(*calls))


Check = Callable[[Patient], Awaitable[Finding]]


def finding(check: str, is_good: bool, message: str, remedy: str) -> Finding:
    """The finding, with the remedy if it is bad.

    is_good: result of the check. message: the measured values. remedy: a way to correct it.
    """
    if is_good:
        return Finding(check=check, verdict="good", found=message)
    return Finding(check=check, verdict="bad", found=message, remedy=remedy)


def user_message(question: str) -> Message:
    """A message of the user that holds the question."""
    return {"role": "user", "content": question}


async def check_flags(patient: Patient) -> Finding:
    """Check that the server has the flags that training needs.

    Bad without the route for its flags, with other sampling defaults than those of a request, and
    without a transport of params.
    """
    if not patient.config:
        remedy = f"{RESTART}VLLM_SERVER_DEV_MODE=1 in its environment"
        # The other flags cannot be read without the route.
        return finding("flags", False, "the server has no route for its flags", remedy)
    model = patient.config["model_config"]
    transfer = patient.config.get("weight_transfer_config") or {}
    wrong = {
        f"--{name.replace('_', '-')} {needed}": f"{name} {model[name]}"
        for name, needed in NEEDED_FLAGS.items()
        if model[name] != needed
    }
    if not transfer:
        wrong["""--weight-transfer-config '{"backend": "ludic"}'"""] = "no transport of params"
    message = ", ".join(wrong.values()) or f"transport of params: {transfer.get('backend')!r}"
    return finding("flags", not wrong, message, RESTART + " ".join(wrong))


async def check_round_trip(patient: Patient) -> Finding:
    """Check that the server's chat template and tokenizer are the trainer's.

    The prompt's ids must be equal, and the trainer's tokenizer must decode the completion to the
    server's text. Raises ClientError for a request that fails.
    """
    async with VLLMChatClient(patient.url) as chat:
        reply = await chat.complete([user_message(QUESTIONS[0])], Sampling(max_tokens=TOKENS))
    ours = tuple(patient.prompt(QUESTIONS[0]))
    # First, since other ids make every later comparison meaningless.
    if reply.prompt_ids != ours:
        message = f"the server renders {reply.prompt_ids} where the trainer has {ours}"
        return finding("tokens", False, message, "serve the folder that --model names")
    text = patient.tokenizer.decode(reply.completion_ids or (), skip_special_tokens=True)
    return finding(
        "tokens",
        text == reply.text,
        f"same prompt of {len(ours)} tokens; {reply.text!r} decoded as {text!r}",
        "the tokenizers differ: serve the folder that --model names",
    )


def parity(name: str, sampling: Sampling) -> Check:
    """A check that log-probs at this sampling are those of the trainer.

    name: of the finding. sampling: temperature and nucleus to sample with.
    The check is good if the mean absolute difference is within the tolerance of the dtypes.
    """

    async def check(patient: Patient) -> Finding:
        completions = await patient.samples(sampling)
        off = differences(patient.model, completions)
        message = f"mean {off.mean():.1e}, largest {off.max():.1e} nats over {len(off)} tokens"
        remedy = (
            "the server has other params, or other flags: see the checks above; train the model "
            "that is served, in the precision that it is served in"
        )
        return finding(name, bool(off.mean() <= patient.tolerance), message, remedy)

    return check


def expected_logprobs(model: nn.Module, completion: Completion) -> Tensor:
    """Log-probs [T] of the completion's tokens at its temperature, within its nucleus.

    In nats, float32, on the CPU. T: number of the completion's tokens; its token ids are required.
    """
    logits, ids = _logits_and_ids(model, completion)
    draws = draws_of([completion.sampling] * len(ids))
    return log_distribution(logits, draws).gather(1, ids[:, None])[:, 0].cpu()


def expected_masks(model: nn.Module, completion: Completion) -> bytes:
    """The sampling masks of the completion's tokens under the model, as `packed_masks` packs them.

    A token that the model leaves out is counted as one of its mask.
    """
    logits, ids = _logits_and_ids(model, completion)
    draws = draws_of([completion.sampling] * len(ids))
    inside = log_distribution(logits, draws).isfinite().scatter(1, ids[:, None], True)
    drawn = ids.tolist()
    return packed_masks([row.nonzero()[:, 0].cpu().numpy() for row in inside], drawn)


def is_greedy(model: nn.Module, completion: Completion) -> bool:
    """True if each token of the completion is the likeliest one after those before it.

    Of equal logits, only the one that argmax finds counts.
    """
    # One pass is enough: if every token is the likeliest, greedy decoding has the same prefixes.
    logits, ids = _logits_and_ids(model, completion)
    return bool((logits.argmax(-1) == ids).all())


@torch.no_grad()
def _logits_and_ids(model: nn.Module, completion: Completion) -> tuple[Tensor, Tensor]:
    """Logits [T, V] for the completion's tokens, and their ids [T]."""
    prompt, ids = list(completion.prompt_ids or ()), list(completion.completion_ids or ())
    # One completion at a time: a padded batch could round differently.
    row = torch.tensor([prompt + ids], device=next(model.parameters()).device)
    # The logits at a position predict the token after it.
    logits = model(row).logits[0, len(prompt) - 1 : -1, : vocabulary_of(model)]
    return logits, row[0, len(prompt) :]


def differences(model: nn.Module, completions: Sequence[Completion]) -> Tensor:
    """|log-prob of the server - log-prob of the trainer| of all tokens, in nats, [sum of T].

    completions: with token ids and the server's log-probs.
    """
    each = [
        (torch.tensor(c.logprobs or ()) - expected_logprobs(model, c)).abs() for c in completions
    ]
    return torch.cat(each)


async def check_profile(patient: Patient) -> Finding:
    """Show how the model's template ends turns; bad for a model whose replies nothing ends."""
    profile = chat_profile(patient.tokenizer)
    remedy = "set eos_token in the tokenizer, or eos_token_id in generation_config.json"
    return finding("chat", bool(profile.stop_ids), profile.text(patient.tokenizer), remedy)


NEEDED_FLAGS = {"logprobs_mode": "processed_logprobs", "generation_config": "vllm"}
# Below 1 and within a nucleus too: a server may report log-probs of the unmodified distribution.
SAMPLINGS = {
    "log-probs at T=1": Sampling(max_tokens=TOKENS),
    "log-probs at T=0.7": Sampling(max_tokens=TOKENS, temperature=0.7),
    "log-probs, top_p=0.9": Sampling(max_tokens=TOKENS, top_p=0.9),
}
CHECKS: Sequence[tuple[str, Check]] = (
    ("flags", check_flags),
    ("chat", check_profile),
    ("tokens", check_round_trip),
    *((name, parity(name, sampling)) for name, sampling in SAMPLINGS.items()),
)
