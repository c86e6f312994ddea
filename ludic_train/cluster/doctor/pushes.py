"""Checks that push: the server gets other params for a moment, and its own back at the end."""

from __future__ import annotations

import copy
import time
import timeit
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from urllib.parse import urlsplit

import torch
from torch import nn

from ludic_gym.types import Sampling
from ludic_gym.web_pages import LOOPBACK
from ludic_train.cluster.doctor.checks import (
    QUESTIONS,
    RESTART,
    Finding,
    Patient,
    differences,
    is_greedy,
    judged,
)
from ludic_train.cluster.publish.control import ControlClient
from ludic_train.cluster.publish.files import FilesPublisher
from ludic_train.cluster.publish.vllm_transfer import BACKENDS, VLLMTransferPublisher, has_vllm
from ludic_train.errors import PublishError
from ludic_train.sources.publisher import PolicyPublisher
from ludic_vllm import BACKEND

GREEDY = Sampling(max_tokens=12, temperature=0)
# Versions that no training run has, and two of them, so that each push changes the version.
CHANGED, RESTORED = 900_000_001, 900_000_000
# Longer than a block of vLLM's prefix cache.
CACHED_TOKENS = 300
# Pushes to time; the first one also connects.
ROUNDS = 3

PushCheck = Callable[[Patient, PolicyPublisher], Awaitable[Finding]]


def publisher_to(patient: Patient) -> PolicyPublisher | None:
    """A publisher by a way that this server has; None without one.

    Files are for a server on this machine; vLLM's own engines need vLLM and a card here.
    """
    backend = (patient.config.get("weight_transfer_config") or {}).get("backend")
    clients = [patient.client]
    if backend == BACKEND and urlsplit(patient.url).hostname in LOOPBACK:
        return FilesPublisher(patient.url, clients=clients, model=patient.model)
    if backend in BACKENDS and has_vllm() and torch.cuda.is_available():
        return VLLMTransferPublisher(patient.url, patient.model, backend, clients=clients)
    return None


@asynccontextmanager
async def changed_params(patient: Patient, publisher: PolicyPublisher) -> AsyncIterator[nn.Module]:
    """Push other params for the block; the model that has them.

    At the end of the block, also after an error, the server gets the params of `patient.model`.
    Raises PublishError for a push that fails.
    """
    # A copy, because the original is pushed back at the end.
    other = copy.deepcopy(patient.model)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for param in other.parameters():
            noise = torch.randn(param.shape, generator=generator).to(param.device, param.dtype)
            # Enough to change most greedy tokens, and too little to make a logit infinite.
            param.add_(0.1 * noise * param.std())
    try:
        await publisher.publish(other.named_parameters(), CHANGED)
        yield other
    finally:
        await publisher.publish(patient.model.named_parameters(), RESTORED)


async def check_checksums(patient: Patient, publisher: PolicyPublisher) -> Finding:
    """Check by the server's checksums that a push changes params, and one back restores all.

    Good for a server without the route /weight_checker. On a CPU, vLLM's checksums leave out packed
    params.
    """
    async with aclosing(ControlClient(patient.url)) as server:

        async def sums() -> Mapping[str, str]:
            found = await server.post("/weight_checker", {"action": "checksum"})
            return found.get("checksums") or {}

        try:
            before = await sums()
        except PublishError as error:
            return judged("checksums", True, f"not known: {error}", "")
        async with changed_params(patient, publisher):
            changed = await sums()
        after = await sums()
    same = sum(changed.get(name) == own for name, own in before.items())
    wrong = sorted(name for name, own in before.items() if after.get(name) != own)
    return judged(
        "checksums",
        not wrong and same < len(before),
        f"{len(before) - same} of {len(before)} changed, {len(wrong)} not restored"
        + (f", such as {wrong[0]}" if wrong else ""),
        "do not train with this server: a push leaves params of another version in it",
    )


async def check_push(patient: Patient, publisher: PolicyPublisher) -> Finding:
    """Check that after a push the server computes with the new params, and only with them.

    Greedy tokens must be those of the changed model, and log-probs within the tolerance.
    Raises PublishError for a push that fails, ClientError for a request that does.
    """
    prompts = [patient.prompt(question) for question in QUESTIONS]
    async with changed_params(patient, publisher) as other:
        greedy = [await patient.client.continued(prompt, GREEDY) for prompt in prompts]
        sampled = await patient.samples(Sampling(max_tokens=GREEDY.max_tokens))
    equal = sum(is_greedy(other, completion) for completion in greedy)
    off = differences(other, sampled)
    return judged(
        "push",
        equal == len(greedy) and bool(off.mean() <= patient.tolerance),
        f"{equal} of {len(greedy)} greedy completions equal, log-probs off by {off.mean():.1e} "
        "nats",
        "do not train with this server: it does not have the params of its version",
    )


async def check_prefix_cache(patient: Patient, publisher: PolicyPublisher) -> Finding:
    """Check that a push clears the prefix cache.

    A long prompt is cached before the push and sampled from again after it: old keys and values
    would move the log-probs.
    """
    most = patient.config["model_config"].get("max_model_len", CACHED_TOKENS)
    sampling = Sampling(max_tokens=4)
    # A model of few positions cannot hold the whole prompt.
    length = min(CACHED_TOKENS, most - sampling.max_tokens)
    prompt = (patient.prompt(" ".join(QUESTIONS)) * CACHED_TOKENS)[:length]
    await patient.client.continued(prompt, sampling)
    async with changed_params(patient, publisher) as other:
        completion = await patient.client.continued(prompt, sampling)
    off = differences(other, [completion])
    return judged(
        "prefix cache",
        bool(off.mean() <= patient.tolerance),
        f"log-probs after a cached prompt off by {off.mean():.1e} nats",
        f"{RESTART}--no-enable-prefix-caching: old keys and values outlive a push",
    )


async def check_push_time(patient: Patient, publisher: PolicyPublisher) -> Finding:
    """Measure the time of a push, and of a copy of as many bytes in memory.

    Never bad: the copy is the lower bound to compare with.
    """
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        await publisher.publish(patient.model.named_parameters(), RESTORED)
        seconds.append(time.perf_counter() - started)
    size = sum(p.numel() * p.element_size() for p in patient.model.parameters())
    # The fastest, because other processes only ever add time.
    found = (
        f"{min(seconds):.3g} s for {size / 1e6:.3g} MB, {size / 1e6 / min(seconds):.3g} MB/s; "
        f"a copy in memory takes {copy_seconds(size):.2g} s"
    )
    return judged("push time", True, found, "")


def copy_seconds(num_bytes: int) -> float:
    """Seconds that this machine takes to copy that many bytes in memory, best of ROUNDS."""
    source, target = (torch.ones(num_bytes, dtype=torch.uint8) for _ in range(2))
    return min(timeit.repeat(lambda: target.copy_(source), number=1, repeat=ROUNDS))


PUSH_CHECKS: Sequence[tuple[str, PushCheck]] = (
    # First, when the params are still those that the server has loaded.
    ("checksums", check_checksums),
    ("push", check_push),
    ("prefix cache", check_prefix_cache),
    ("push time", check_push_time),
)
