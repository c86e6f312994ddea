"""`ludic doctor`: a server and a model, examined together."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from ludic_gym.clients.transport import HttpOptions, HttpTransport
from ludic_gym.clients.vllm_tokens import VLLMTokenClient
from ludic_gym.commands.arguments import screen
from ludic_gym.errors import ClientError, LudicError
from ludic_train.doctor.checks import CHECKS, Check, Patient
from ludic_train.doctor.findings import Finding, render
from ludic_train.doctor.pushes import PUSH_CHECKS
from ludic_train.inference.saved import model_and_spec
from ludic_train.models.chat_template import chat_renderer
from ludic_train.models.load import load_model

BAD = 1
ABOUT = """Compare a vLLM server with the model that it should serve: its flags, tokens, log-probs
at several temperatures, seeds; then push changed params to it, see that it computes with them, and
give it its own back. Not while somebody trains with it. The exit code is 1 if anything is bad.

examples:
  ludic doctor --url http://localhost:8000 --model runs/tic-tac-toe
  ludic doctor --url http://localhost:8000 --model Qwen/Qwen3-0.6B --no-push"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """What to examine.

    Attributes:
        url: Address of the server.
        model: A run's folder, a folder in Hugging Face format, or a hub id.
        dtype: Precision that the trainer's side computes in.
        push: Push params to the server as well.
    """

    url: str
    model: str
    dtype: Literal["float32", "bfloat16"] = "float32"
    push: bool = True


def main(argv: list[str]) -> int:
    """Examine, print the table; the exit code."""
    options = tyro.cli(DoctorOptions, args=argv, prog="ludic doctor", description=ABOUT)
    findings = asyncio.run(examined(options))
    screen().print(render(findings))
    return BAD if any(finding.verdict == "bad" for finding in findings) else 0


async def examined(options: DoctorOptions) -> list[Finding]:
    """What every check found. Raises ClientError for a server that cannot be reached."""
    import torch

    folder: str | Path = options.model
    if Path(options.model).is_dir():
        folder, _ = model_and_spec(Path(options.model))
    dtype: torch.dtype = getattr(torch, options.dtype)
    model, tokenizer = load_model(folder, dtype=dtype)
    model.eval()

    url = options.url.rstrip("/").removesuffix("/v1")
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
        checks = [*CHECKS, *(PUSH_CHECKS if options.push else ())]
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
        if " answered 404" not in str(error):
            raise
        return {}
    finally:
        await http.close()
    config: Mapping[str, Any] = answer["vllm_config"]
    return config
