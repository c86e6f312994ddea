"""Servers of this process: a local model, or a client's model whose calls are recorded."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ludic_gym.clients.openai import HostedChatClient
from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.errors import ConfigError
from ludic_gym.models import model as named_model
from ludic_train.agents.gateway import Gateway
from ludic_train.agents.served_model import ServedModel
from ludic_train.engine.client import PREFIX_CACHE_BYTES, model_folder
from ludic_train.models.cache import model_and_harness
from ludic_train.models.exact import make_exact
from ludic_train.models.load import load_model
from ludic_train.models.token_client import token_client
from ludic_train.models.tokenizer import load_tokenizer
from ludic_train.server_tokens import issued_token

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def serve_local(
    model: str,
    bound: socket.socket,
    *,
    host: str = "127.0.0.1",
    device: str = "auto",
    dtype: str = "auto",
    threads: int | None = None,
    exact: bool = False,
    routed_experts: bool = False,
    prefix_cache_mib: int | None = None,
    **gateway_options: Any,  # noqa: ANN401 - of Gateway
) -> None:
    """Serve a model until Ctrl-C or SIGTERM. Adapters are merged into their base.

    model: a run's folder, a folder in Hugging Face format, or a hub id.
    bound: a socket at an address of `host`.
    device, dtype: "auto" takes a GPU if there is one, and the type of `ludic train`.
    threads: of torch on a CPU; None takes torch's default.
    exact: log-probs to the bit as the trainer has them, see `make_exact`.
    routed_experts, prefix_cache_mib: as of `LocalChatClient`; the latter in MiB.
    Raises ConfigError for a device that is not available and a type that is not computed in,
    ModelNotFound, UnsupportedModel.
    """
    if threads is not None:
        if threads < 1:
            raise ConfigError(f"threads={threads} must be at least 1")
        # Before the model is loaded: the setting is for the whole process.
        torch.set_num_threads(threads)
    loaded, tokenizer = _loaded(model, device, dtype, exact=exact)
    served = ServedModel(
        model,
        loaded,
        tokenizer,
        routed_experts=routed_experts,
        prefix_cache_bytes=(
            PREFIX_CACHE_BYTES if prefix_cache_mib is None else prefix_cache_mib * 2**20
        ),
    )
    with issued_token(bound.getsockname()[1]) as token:
        gateway = served.gateway(host=host, token=token, **gateway_options)
        shown = f"  token {token}" if gateway_options.get("out") else ""
        asyncio.run(_serve(gateway, bound, f"({model}; local engine, {loaded.device.type}){shown}"))


def serve_recorded(
    model: str,
    servers: Sequence[str],
    bound: socket.socket,
    *,
    host: str = "127.0.0.1",
    **gateway_options: Any,  # noqa: ANN401 - of Gateway
) -> None:
    """Serve a model that other servers sample from, until Ctrl-C or SIGTERM.

    model: whose chat template makes the prompts; or, without servers, the address of any
        OpenAI-style server or "openai/NAME", of which texts alone are recorded.
    servers: addresses of vLLM servers. bound: a socket at `host`. Raises ModelNotFound.
    """
    client: VLLMTokenClient | HostedChatClient | None
    if servers:
        tokenizer = load_tokenizer(model_and_harness(model_folder(model))[0])
        client = token_client(servers, tokenizer, seeds=False)
    else:
        tokenizer = None
        client = named_model(model).client
        if client is None:
            raise ConfigError(f"{model!r} is behind no server: name its servers with --server")
    with issued_token(bound.getsockname()[1]) as token:
        options = {"model": model, "host": host, "token": token, **gateway_options}
        gateway = Gateway(client, tokenizer, is_open=True, **options)
        asyncio.run(_serve(gateway, bound, f"({', '.join([model, *servers])})  token {token}"))


async def _serve(gateway: Gateway, bound: socket.socket, about: str) -> None:
    """Serve until a signal; print one line when ready and one when stopping."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    # In place of `stop_by_signal`, whose exception is for the time of loading.
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop.set)
    async with gateway.running(bound):
        # Flushed, because a program may read stdout through a pipe.
        print(f"ready  {gateway.url}  {about}", flush=True)
        await stop.wait()
        print("stopping", flush=True)


def _loaded(
    model: str, device: str, dtype: str, *, exact: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer, without gradients; adapters are merged. Raises as `serve_local`."""
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise ConfigError("--device cuda, but torch finds no GPU here")
    device = "cuda" if has_gpu and device != "cpu" else "cpu"
    if dtype == "float16" or (exact and dtype == "bfloat16"):
        computes = "float32 with --exact" if exact else "float32 or bfloat16"
        raise ConfigError(f"--dtype {dtype}: the local engine computes in {computes}")
    if dtype == "auto":
        dtype = "bfloat16" if device == "cuda" and not exact else "float32"
    folder = model_and_harness(Path(model))[0] if Path(model).is_dir() else model
    loaded, tokenizer = load_model(folder, device=device, dtype=getattr(torch, dtype))
    if (Path(folder) / "adapter_config.json").is_file():
        # Merged, because a forward pass through separate adapters is slower.
        loaded = loaded.merge_and_unload()
    loaded.eval().requires_grad_(False)
    if exact:
        make_exact(loaded)
    return loaded, tokenizer
