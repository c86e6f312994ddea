"""All checks of a server and a model, in order.

Checks that need requests alone come first. Checks that push params come last, because a failed
push may leave the server with other params.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import torch

from ludic_gym.clients.openai import root_address
from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.errors import LudicError
from ludic_gym.limits import HttpOptions
from ludic_train.cluster.doctor.bitwise import BITWISE_CHECKS
from ludic_train.cluster.doctor.checks import CHECKS, Finding, Patient
from ludic_train.cluster.doctor.pushes import PUSH_CHECKS, publisher_to
from ludic_train.cluster.publish.control import ControlClient
from ludic_train.cluster.status import LIMIT_S
from ludic_train.engine.policy_spec import model_and_spec
from ludic_train.errors import PublishError
from ludic_train.models.chat_template import chat_renderer
from ludic_train.models.exact import make_exact
from ludic_train.models.load import load_model


async def examined(
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
    folder = model_and_spec(Path(model_name))[0] if is_folder else model_name
    precision: torch.dtype = getattr(torch, dtype)
    model, tokenizer = load_model(folder, dtype=precision)
    # Dropout would change the log-probs to compare with.
    model.eval()
    if bitwise:
        make_exact(model)

    url = root_address(url)
    async with VLLMTokenClient(
        url, chat_renderer(tokenizer), options=HttpOptions(max_retries=1)
    ) as client:
        # The first request: without a server there is nothing to examine.
        await client.model()
        config = await server_config(url)
        patient = Patient(url=url, model=model, tokenizer=tokenizer, client=client, config=config)
        checks, push = (BITWISE_CHECKS, False) if bitwise else (CHECKS, push)
        findings = [await found_by(name, check(patient)) for name, check in checks]
        publisher = publisher_to(patient) if push else None
        for name, push_check in PUSH_CHECKS if push else ():
            check = None if publisher is None else push_check(patient, publisher)
            findings.append(skipped(name) if check is None else await found_by(name, check))
        return findings


async def found_by(name: str, check: Awaitable[Finding]) -> Finding:
    """Finding of the check; an error in it is a bad finding, and the other checks follow.

    name: of the finding, also printed on stderr while the check runs.
    """
    # Pushes of a large model take minutes; stdout is for the table.
    print(f"{name} ...", file=sys.stderr, flush=True)
    try:
        return await check
    except LudicError as error:
        return Finding(check=name, verdict="bad", found=str(error), remedy="see what is found")


def skipped(check: str) -> Finding:
    """The finding of a push check for a server that takes no params."""
    return Finding(
        check=check,
        verdict="skipped",
        found="the server takes params in no way that is available here",
        remedy="run this on the server's machine; for vLLM's own engines, with vLLM and a GPU",
    )


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
