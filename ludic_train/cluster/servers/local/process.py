"""The local engine as a server in this process: loaded, served, and stopped by a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from aiohttp import web
from aiohttp.typedefs import Middleware

from ludic_gym.errors import ConfigError
from ludic_train.cluster.servers.local import control, generation, info
from ludic_train.cluster.servers.local.guard import guarded
from ludic_train.cluster.servers.local.responses import SERVED, with_errors
from ludic_train.cluster.servers.local.served_model import Served
from ludic_train.cluster.servers.vllm_command import ServeOptions
from ludic_train.distributed.device import DTYPES, resolved_precision
from ludic_train.engine.policy_spec import model_and_spec
from ludic_train.models.exact import make_exact
from ludic_train.models.load import load_model
from ludic_train.processes import url_of
from ludic_train.server_tokens import issued_token

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# For responses that are being written when a signal comes.
SHUTDOWN_S = 0.2
# A prompt of 128k token ids takes about one of them.
BODY_BYTES = 8 * 2**20


def serve_local(
    model: str,
    options: ServeOptions,
    threads: int | None,
    bound: socket.socket,
    *,
    exact: bool = False,
    prefix_cache_mib: int | None = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM. Adapters are merged into their base.

    model: a run's folder, a folder in Hugging Face format, or a hub id.
    threads: of torch on a CPU; None takes torch's default.
    bound: a socket at the address of `options`.
    exact: log-probs to the bit as the trainer has them, see `make_exact`.
    prefix_cache_mib: as `prefix_cache_bytes` of `LocalChatClient`, in MiB.
    Raises ConfigError for a device that is not available and a type that is not computed in,
    ModelNotFound, UnsupportedModel.
    """
    if threads is not None:
        if threads < 1:
            raise ConfigError(f"threads={threads} must be at least 1")
        # Before the model is loaded: the setting is for the whole process.
        torch.set_num_threads(threads)
    device = _device(options)
    dtype = _dtype(options, device, exact=exact)
    loaded, tokenizer = _loaded(model, device, dtype)
    if exact:
        make_exact(loaded)
    served = Served(
        model,
        loaded,
        tokenizer,
        routed_experts=options.routed_experts,
        prefix_cache_bytes=None if prefix_cache_mib is None else prefix_cache_mib * 2**20,
    )
    asyncio.run(_serve(served, bound, options))


async def running(served: Served, bound: socket.socket, token: str = "") -> web.AppRunner:
    """The server at that address, started; `cleanup` stops it and aborts its requests.

    bound: a socket with an address, from `bound_socket`. token: as of `guarded`; "" for none.
    """
    host = bound.getsockname()[0]
    runner = web.AppRunner(
        make_app(served, guarded(host, token) if token else None),
        # A client that closes its connection makes room for others.
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=SHUTDOWN_S,
    )
    await runner.setup()
    # The connections that many actors open at once.
    await web.SockSite(runner, bound, backlog=1024).start()
    return runner


async def _serve(served: Served, bound: socket.socket, options: ServeOptions) -> None:
    """Serve until a signal; print one line when ready and one when stopping."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    # In place of `stop_by_signal`, whose exception is for the time of loading.
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop.set)
    port = bound.getsockname()[1]
    with issued_token(port) as token:
        runner = await running(served, bound, token)
        await _until_stopped(served, runner, url_of(options.host, port), stop)


async def _until_stopped(
    served: Served, runner: web.AppRunner, url: str, stop: asyncio.Event
) -> None:
    try:
        weight = next(served.model.parameters())
        print(f"ready  {url}  ({served.name}; local engine, {weight.device.type})", flush=True)
        await stop.wait()
        # Flushed, because a program may read stdout through a pipe.
        print("stopping", flush=True)
    finally:
        await runner.cleanup()


def _device(options: ServeOptions) -> str:
    """Device by `options.device`: "cuda" or "cpu". Raises ConfigError for a GPU that is missing."""
    has_gpu = torch.cuda.is_available()
    if options.device == "cuda" and not has_gpu:
        raise ConfigError("--device cuda, but torch finds no GPU here")
    return "cuda" if has_gpu and options.device != "cpu" else "cpu"


def _dtype(options: ServeOptions, device: str, *, exact: bool) -> torch.dtype:
    """Type by `options.dtype`, "auto" as of `ludic train`. Raises ConfigError for another one."""
    name = options.dtype
    if name == "float16" or (exact and name == "bfloat16"):
        computes = "float32 with --exact" if exact else "float32 or bfloat16"
        raise ConfigError(f"--dtype {name}: the local engine computes in {computes}")
    if name == "auto":
        return torch.float32 if exact else DTYPES[resolved_precision("auto", device)]
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def _loaded(
    model: str, device: str, dtype: torch.dtype
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer, without gradients; adapters are merged."""
    folder = model_and_spec(Path(model))[0] if Path(model).is_dir() else model
    loaded, tokenizer = load_model(folder, device=device, dtype=dtype)
    if (Path(folder) / "adapter_config.json").is_file():
        # Merged, because a forward pass through separate adapters is slower.
        loaded = loaded.merge_and_unload()
    return loaded.eval().requires_grad_(False), tokenizer


def make_app(served: Served, guard: Middleware | None = None) -> web.Application:
    """The server's routes, as an application of aiohttp that tests can start without a process.

    guard: what `guarded` gives; None lets all requests in.

    Paths and methods are those of vLLM, so that clients and publishers need not distinguish them.
    """
    middlewares = [with_errors, guard] if guard else [with_errors]
    app = web.Application(middlewares=middlewares, client_max_size=BODY_BYTES)
    app[SERVED] = served
    app.router.add_get("/health", info.health)
    app.router.add_get("/v1/models", info.models)
    app.router.add_get("/server_info", info.server_info)
    app.router.add_get("/metrics", info.metrics)
    app.router.add_post("/v1/chat/completions", generation.chat)
    app.router.add_post("/v1/completions", generation.complete)
    app.router.add_post("/inference/v1/generate", generation.generate)
    app.router.add_post("/pause", control.pause)
    app.router.add_post("/resume", control.resume)
    app.router.add_get("/is_paused", control.is_paused)
    app.router.add_post("/start_weight_update", control.start)
    app.router.add_post("/update_weights", control.update)
    app.router.add_post("/finish_weight_update", control.finish)
    app.router.add_post("/update_weight_version", control.rename)
    app.router.add_get("/weight_info", control.weight_info)
    app.router.add_post("/collective_rpc", control.call)
    app.router.add_post("/v1/load_lora_adapter", control.no_adapters)
    return app
