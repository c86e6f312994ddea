"""Checks that push: the server gets other params for a moment, and its own back at the end."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import torch
from torch import nn

from ludic_gym.types import Completion, Sampling
from ludic_train.doctor.checks import QUESTIONS, RESTART, Check, Patient
from ludic_train.doctor.findings import Finding, judged
from ludic_train.doctor.scores import differences, greedy_ids
from ludic_train.publishers.nccl import NcclWire
from ludic_train.publishers.transports import FileWire, GlooWire, Wire
from ludic_train.publishers.vllm import VLLMPublisher
from ludic_train.serving.flags import LOOPBACK
from ludic_vllm import BACKEND

GREEDY = Sampling(max_tokens=12, temperature=0)
# Versions that no training run has: the server's name for its params has to change.
CHANGED, RESTORED = 900_000_001, 900_000_000
# Longer than a block of vLLM's prefix cache.
CACHED_TOKENS = 300
ROUNDS = 3


def wire_to(patient: Patient) -> Wire | None:
    """A way to push that this server takes; None if there is none."""
    backend = (patient.config.get("weight_transfer_config") or {}).get("backend")
    if backend == "nccl" and torch.cuda.is_available():
        return NcclWire()
    if backend != BACKEND:
        return None
    return FileWire() if urlsplit(patient.url).hostname in LOOPBACK else GlooWire()


async def check_push(patient: Patient) -> Finding:
    """Whether after a push the server computes with the new params, and only with them."""
    publisher = _publisher(patient)
    if publisher is None:
        return _skipped("push")
    other = changed(patient.model)
    prompts = [patient.prompt(question) for question in QUESTIONS]
    try:
        await publisher.publish(other.named_parameters(), CHANGED)
        got = [await patient.client.continued(prompt, GREEDY) for prompt in prompts]
        sampled = await patient.samples(Sampling(max_tokens=GREEDY.max_tokens))
    finally:
        await publisher.publish(patient.model.named_parameters(), RESTORED)
    alike = sum(_is_greedy(other, completion) for completion in got)
    off = differences(other, sampled)
    remedy = "do not train with this server: it has not the params that it says it has"
    return judged(
        "push",
        alike == len(got) and bool(off.mean() <= patient.tolerance),
        f"{alike} of {len(got)} greedy answers alike, log-probs off by {off.mean():.1e} nats",
        remedy,
    )


async def check_prefix_cache(patient: Patient) -> Finding:
    """Whether what was computed for a prompt before a push is forgotten."""
    publisher = _publisher(patient)
    if publisher is None:
        return _skipped("prefix cache")
    most = patient.config["model_config"].get("max_model_len", CACHED_TOKENS)
    sampling = Sampling(max_tokens=4)
    length = min(CACHED_TOKENS, most - sampling.max_tokens)
    prompt = (patient.prompt(" ".join(QUESTIONS)) * CACHED_TOKENS)[:length]
    other = changed(patient.model)
    await patient.client.continued(prompt, sampling)
    try:
        await publisher.publish(other.named_parameters(), CHANGED)
        completion = await patient.client.continued(prompt, sampling)
    finally:
        await publisher.publish(patient.model.named_parameters(), RESTORED)
    off = differences(other, [completion])
    return judged(
        "prefix cache",
        bool(off.mean() <= patient.tolerance),
        f"log-probs after a cached prompt off by {off.mean():.1e} nats",
        f"{RESTART}--no-enable-prefix-caching: old keys and values outlive a push",
    )


async def check_push_time(patient: Patient) -> Finding:
    """How long a push takes, beside copying as many bytes in memory."""
    publisher = _publisher(patient)
    if publisher is None:
        return _skipped("push time")
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        await publisher.publish(patient.model.named_parameters(), RESTORED)
        seconds.append(time.perf_counter() - started)
    size = sum(p.numel() * p.element_size() for p in patient.model.parameters())
    copy_s = copy_seconds(size)
    found = (
        f"{min(seconds):.3g} s for {size / 1e6:.3g} MB, {size / 1e6 / min(seconds):.3g} MB/s; "
        f"memory copies them in {copy_s:.2g} s"
    )
    return judged("push time", True, found, "")


def _is_greedy(model: nn.Module, completion: Completion) -> bool:
    ids = completion.completion_ids or ()
    return ids == greedy_ids(model, completion.prompt_ids or (), len(ids))


def changed(model: nn.Module) -> nn.Module:
    """A copy of the model, whose params are so far off that its answers differ."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for param in other.parameters():
            noise = torch.randn(param.shape, generator=generator).to(param.device, param.dtype)
            param.add_(0.1 * noise * param.std())
    return other


def copy_seconds(num_bytes: int) -> float:
    """How long this machine takes to copy that much in memory."""
    source, target = (torch.ones(num_bytes, dtype=torch.uint8) for _ in range(2))
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - started)
    return min(times)


def _publisher(patient: Patient) -> VLLMPublisher | None:
    wire = wire_to(patient)
    return None if wire is None else VLLMPublisher(patient.url, wire, clients=[patient.client])


def _skipped(check: str) -> Finding:
    return Finding(
        check=check,
        verdict="skipped",
        found="the server takes no params that could be sent from here",
        remedy=f"{RESTART}--weight-transfer-config; for its own NCCL, run this on a GPU",
    )


PUSH_CHECKS: Sequence[tuple[str, Check]] = (
    ("push", check_push),
    ("prefix cache", check_prefix_cache),
    ("push time", check_push_time),
)
