"""A server and a model, examined together."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ludic_gym.clients.transport import HttpOptions, HttpTransport
from ludic_gym.clients.vllm_tokens import VLLMTokenClient
from ludic_gym.errors import ClientError, LudicError
from ludic_train.doctor.checks import CHECKS, Check, Patient
from ludic_train.doctor.findings import Finding
from ludic_train.doctor.pushes import PUSH_CHECKS
from ludic_train.inference.policy_spec import model_and_spec
from ludic_train.models.chat_template import chat_renderer
from ludic_train.models.load import load_model


async def examined(url: str, model_name: str, *, dtype: str, push: bool) -> list[Finding]:
    """Findings of all checks of the server at `url` beside the model it should serve.

    model_name: a run's folder, a folder in Hugging Face format, or a hub id. dtype: precision of
    the trainer's side, such as "float32". push: push params to the server as well.
    Raises ClientError for a server that cannot be reached.
    """
    folder: str | Path = model_name
    if Path(model_name).is_dir():
        folder, _ = model_and_spec(Path(model_name))
    precision: torch.dtype = getattr(torch, dtype)
    model, tokenizer = load_model(folder, dtype=precision)
    model.eval()

    url = url.rstrip("/").removesuffix("/v1")
    quick = HttpOptions(max_retries=1)
    async with VLLMTokenClient(url, chat_renderer(tokenizer), options=quick) as client:
        await client.model()
        patient = Patient(
            url=url,
            model=model,
            tokenizer=tokenizer,
            client=client,
            config=await server_config(url),
        )
        checks = [*CHECKS, *(PUSH_CHECKS if push else ())]
        return [await found_by(name, check, patient) for name, check in checks]


async def found_by(name: str, check: Check, patient: Patient) -> Finding:
    """What the check found; an error in it is a bad finding, and the others go on."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    try:
        return await check(patient)
    except LudicError as error:
        return Finding(check=name, verdict="bad", found=str(error), remedy="see what is found")


async def server_config(url: str) -> Mapping[str, Any]:
    """VLLM's config as it tells it; empty where it does not."""
    http = HttpTransport([url], "VLLM_API_KEY", HttpOptions(max_retries=1))
    try:
        answer = await http.get("/server_info?config_format=json")
    except ClientError as error:
        if " returned 404" not in str(error):
            raise
        return {}
    finally:
        await http.close()
    config: Mapping[str, Any] = answer["vllm_config"]
    return config
