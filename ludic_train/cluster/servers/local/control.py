"""Routes by which a trainer pauses the server, sends params, and resumes it.

The order of a publication is start_weight_update, update_weights with a folder, pause,
finish_weight_update, resume. Paths, fields and statuses are those of vLLM.
"""

from __future__ import annotations

from aiohttp import web

from ludic_gym.errors import ConfigError
from ludic_train.cluster.servers.local.responses import SERVED, reply
from ludic_train.cluster.servers.local.schemas import Call, Finish, NewVersion, Update, read

MODES = ("keep", "wait", "abort")


async def pause(request: web.Request) -> web.Response:
    """POST /pause?mode=: hold further requests; returns when no token is sampled any more.

    mode: "abort" ends the requests in flight at once, "wait" lets them run to their end, and "keep"
        holds them where they are.
    Raises ConfigError for any other mode.
    """
    mode = request.query.get("mode", "abort")
    if mode not in MODES:
        raise ConfigError(f"mode={mode!r} is none of {', '.join(MODES)}")
    served = request.app[SERVED]
    if mode == "keep":
        served.gate.close()
        await served.client.hold()
    else:
        await served.gate.pause(abort=mode == "abort")
    return reply({"status": "paused"})


async def resume(request: web.Request) -> web.Response:
    """POST /resume: sample for the requests that were held, and for all further ones."""
    request.app[SERVED].client.go_on()
    request.app[SERVED].gate.resume()
    return reply({"status": "resumed"})


async def is_paused(request: web.Request) -> web.Response:
    """GET /is_paused: true between /pause and /resume."""
    return reply({"is_paused": request.app[SERVED].gate.is_paused})


async def start(request: web.Request) -> web.Response:
    """POST /start_weight_update: open a session. Raises PublishError if one is open."""
    request.app[SERVED].receiver.start()
    return reply({"message": "Weight update started"})


async def update(request: web.Request) -> web.Response:
    """POST /update_weights: stage the params of a folder; returns when they are checked.

    Raises PublishError, and closes the session, for params that do not match the model.
    """
    body = read(await request.read(), Update)
    await request.app[SERVED].receiver.receive(body.update_info)
    return reply({"message": "Weights updated"})


async def finish(request: web.Request) -> web.Response:
    """POST /finish_weight_update: copy the params into the model.

    Requests in flight continue with the new params, and name the versions of their tokens.
    Without `weight_version` the version keeps its name.
    Raises PublishError if params are missing; the model is unchanged then.
    """
    served, body = request.app[SERVED], read(await request.read(), Finish)
    version = served.version if body.weight_version is None else body.weight_version
    await served.put_in(served.receiver.complete(), version)
    return reply({"message": "Weight update finished"})


async def rename(request: web.Request) -> web.Response:
    """POST /update_weight_version: rename the current params, also for tokens that they gave."""
    served, body = request.app[SERVED], read(await request.read(), NewVersion)
    served.rename(body.new_version)
    return reply({"success": True, "new_version": body.new_version})


async def weight_info(request: web.Request) -> web.Response:
    """GET /weight_info: the version of the params, "default" for the initial ones."""
    return reply({"weight_version": request.app[SERVED].version})


async def call(request: web.Request) -> web.Response:
    """POST /collective_rpc: the methods of publishers, and checksums of the params.

    Params are staged when /update_weights returns. ludic_checksums gives type and CRC-32 of each
    param. Raises ConfigError for any other method.
    """
    served, body = request.app[SERVED], read(await request.read(), Call)
    if body.method == "ludic_settled":
        return reply({"results": [{"settled": True}]})
    if body.method == "ludic_checksums":
        return reply({"results": [await served.client.between_tokens(served.checksums)]})
    raise ConfigError(f"{body.method!r} is no method of the local engine")


async def no_adapters(request: web.Request) -> web.Response:
    """POST /v1/load_lora_adapter: always a ConfigError, with the alternative."""
    raise ConfigError(
        "the local engine takes no adapters: publish them merged, FilesPublisher(urls, model=model)"
    )
