"""All checks of a server and a model, in order, and those that push params.

Checks that need requests alone come first. Those that push come last, because a failed push may
leave the server with other params: it gets others for a moment, and its own back at the end.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import nn

from ludic_gym.clients.transport import root_address
from ludic_gym.errors import LudicError
from ludic_gym.limits import HttpOptions
from ludic_gym.types import Sampling
from ludic_gym.web_pages import LOOPBACK
from ludic_train.cluster.doctor.bitwise import BITWISE_CHECKS
from ludic_train.cluster.doctor.checks import (
    CHECKS,
    QUESTIONS,
    RESTART,
    Finding,
    Patient,
    differences,
    finding,
    is_greedy,
)
from ludic_train.cluster.publish.control import ControlClient, backend_of
from ludic_train.cluster.publish.files import FilesPublisher
from ludic_train.cluster.publish.vllm_transfer import BACKENDS, VLLMTransferPublisher, has_vllm
from ludic_train.cluster.status import LIMIT_S
from ludic_train.errors import PublishError
from ludic_train.models.cache import model_and_harness
from ludic_train.models.exact import make_exact
from ludic_train.models.load import load_model
from ludic_train.models.token_client import token_client
from ludic_train.sources.publisher import PolicyPublisher
from ludic_vllm import BACKEND

GREEDY = Sampling(max_tokens=12, temperature=0)
# Versions that no training run has, and two of them, so that each push changes the version.
CHANGED, RESTORED = 900_000_001, 900_000_000
# Longer than a block of vLLM's prefix cache.
CACHED_TOKENS = 300

PushCheck = Callable[[Patient, PolicyPublisher], Awaitable[Finding]]


def publisher_to(patient: Patient) -> PolicyPublisher | None:
    """A publisher by a way that this server has; None without one.

    Files are for a server on this machine; vLLM's own engines need vLLM and a card here.
    """
    backend = backend_of(patient.config)
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
    return finding(
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
    return finding(
        "prefix cache",
        bool(off.mean() <= patient.tolerance),
        f"log-probs after a cached prompt off by {off.mean():.1e} nats",
        f"{RESTART}--no-enable-prefix-caching: old keys and values outlive a push",
    )


PUSH_CHECKS: Sequence[tuple[str, PushCheck]] = (
    ("push", check_push),
    ("prefix cache", check_prefix_cache),
)


async def examine(
    url: str, model_name: str, *, dtype: str, push: bool, bitwise: bool = False
) -> list[Finding]:
    """Findings of all checks of the server at `url` and the model that it should serve.

    model_name: a run's folder, a folder in Hugging Face format, or a hub id.
    dtype: precision of the trainer's side, such as "float32".
    push: push params to the server as well.
    bitwise: compare bits instead, without a push.
    Raises ClientError for a server that cannot be reached, ModelNotFound for no such model,
    UnsupportedModel as `make_exact` does.
    """
    is_folder = Path(model_name).is_dir()
    folder = model_and_harness(Path(model_name))[0] if is_folder else model_name
    precision: torch.dtype = getattr(torch, dtype)
    model, tokenizer = load_model(folder, dtype=precision)
    # Dropout would change the log-probs to compare with.
    model.eval()
    if bitwise:
        make_exact(model)

    url = root_address(url)
    async with token_client(url, tokenizer, options=HttpOptions(max_retries=1)) as client:
        # The first request: without a server there is nothing to examine.
        await client.model()
        config = await server_config(url)
        patient = Patient(url=url, model=model, tokenizer=tokenizer, client=client, config=config)
        checks, push = (BITWISE_CHECKS, False) if bitwise else (CHECKS, push)
        findings = [await finding_of(name, check(patient)) for name, check in checks]
        publisher = publisher_to(patient) if push else None
        for name, push_check in PUSH_CHECKS if push else ():
            if publisher is None:
                remedy = "run this on the server's machine; vLLM's own engines need vLLM and a GPU"
                message = "the server takes params in no way that is available here"
                result = Finding(check=name, verdict="skipped", found=message, remedy=remedy)
            else:
                result = await finding_of(name, push_check(patient, publisher))
            findings.append(result)
        return findings


async def finding_of(name: str, check: Awaitable[Finding]) -> Finding:
    """Finding of the check; an error in it is a bad finding, and the other checks follow.

    name: of the finding, also printed on stderr while the check runs.
    """
    # Pushes of a large model take minutes; stdout is for the table.
    print(f"{name} ...", file=sys.stderr, flush=True)
    try:
        return await check
    except LudicError as error:
        return Finding(check=name, verdict="bad", found=str(error), remedy="see what is found")


async def server_config(url: str) -> Mapping[str, Any]:
    """Configuration of vLLM; empty for a server without the route.

    Raises PublishError for any other failure of the request.
    """
    async with aclosing(ControlClient(url, limit_s=LIMIT_S)) as server:
        try:
            response = await server.get("/server_info?config_format=json")
        except PublishError as error:
            # A 404 is the finding of `check_flags`; other failures are of the connection.
            if " returned 404" not in str(error):
                raise
            return {}
    config: Mapping[str, Any] = response["vllm_config"]
    return config
