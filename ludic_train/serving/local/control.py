"""Routes by which a trainer pauses the server, sends params, and resumes it."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

from ludic_gym.errors import ConfigError
from ludic_train.serving.local.responses import SERVED, reply
from ludic_train.serving.local.schemas import Call, Finish, Init, NewVersion, Update, read

MODES = ("keep", "wait", "abort")


async def pause(request: web.Request) -> web.Response:
    """POST /pause?mode=: hold further requests; those in flight end, with mode=abort at once."""
    mode = request.query.get("mode", "abort")
    if mode not in MODES:
        raise ConfigError(f"mode={mode!r} is none of {', '.join(MODES)}")
    await request.app[SERVED].gate.pause(abort=mode == "abort")
    return reply({"status": "paused"})


async def resume(request: web.Request) -> web.Response:
    """POST /resume."""
    request.app[SERVED].gate.resume()
    return reply({"status": "resumed"})


async def is_paused(request: web.Request) -> web.Response:
    """GET /is_paused."""
    return reply({"is_paused": request.app[SERVED].gate.is_paused})


async def init_engine(request: web.Request) -> web.Response:
    """POST /init_weight_transfer_engine: connect to a trainer."""
    body = read(await request.read(), Init)
    await request.app[SERVED].receiver.meet(body.init_info)
    return reply({"message": "Weight transfer initialized"})


async def start(request: web.Request) -> web.Response:
    """POST /start_weight_update."""
    request.app[SERVED].receiver.start()
    return reply({"message": "Weight update started"})


async def update(request: web.Request) -> web.Response:
    """POST /update_weights: some params; returns when they have arrived."""
    body = read(await request.read(), Update)
    await request.app[SERVED].receiver.receive(body.update_info)
    return reply({"message": "Weights updated"})


async def finish(request: web.Request) -> web.Response:
    """POST /finish_weight_update: copy the params into the model."""
    served, body = request.app[SERVED], read(await request.read(), Finish)
    version = served.version if body.weight_version is None else body.weight_version
    await served.put_in(served.receiver.complete(), version)
    return reply({"message": "Weight update finished"})


async def rename(request: web.Request) -> web.Response:
    """POST /update_weight_version: rename the current params."""
    served, body = request.app[SERVED], read(await request.read(), NewVersion)
    async with served.gate.alone():
        served.version = body.new_version
    return reply({"success": True, "new_version": body.new_version})


async def weight_info(request: web.Request) -> web.Response:
    """GET /weight_info."""
    return reply({"weight_version": request.app[SERVED].version})


async def call(request: web.Request) -> web.Response:
    """POST /collective_rpc: the methods of ReloadPublisher; a tied head needs no repair here."""
    served, body = request.app[SERVED], read(await request.read(), Call)
    if body.method == "ludic_repair_tied_head":
        return reply({"results": [False]})
    folder = body.kwargs.get("weights_path")
    if body.method != "reload_weights" or not isinstance(folder, str):
        raise ConfigError(
            f"{body.method!r} with {body.kwargs!r:.200} cannot be called: the local engine "
            "knows reload_weights, with a weights_path"
        )
    await served.put_in(await served.receiver.loaded(Path(folder)), served.version)
    return reply({"results": [None]})


async def no_adapters(request: web.Request) -> web.Response:
    """POST /v1/load_lora_adapter."""
    raise ConfigError(
        "the local engine takes no adapters: publish them merged, "
        "VLLMPublisher(urls, lora_scaling=alpha / rank)"
    )
