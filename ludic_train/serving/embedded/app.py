"""Ludic's own sampler behind vLLM's routes.

Params change only while nothing is under way: /pause holds new requests and lets those that are
being sampled end, whatever its mode but "abort", which ends them. So every completion is of one
version, whole. Nobody is asked for a password, as with vLLM's own development routes.
"""

from __future__ import annotations

from aiohttp import web

from ludic_train.serving.embedded import control, generation, info
from ludic_train.serving.embedded.replies import SERVED, with_errors
from ludic_train.serving.embedded.served import Served

# A prompt of 128k tokens as numbers takes one of them.
BODY_BYTES = 8 * 2**20


def make_app(served: Served) -> web.Application:
    """The server's routes; run it with handler_cancellation, so that who hangs up is let go."""
    app = web.Application(middlewares=[with_errors], client_max_size=BODY_BYTES)
    app[SERVED] = served
    app.router.add_get("/health", info.health)
    app.router.add_get("/v1/models", info.models)
    app.router.add_get("/get_world_size", info.world_size)
    app.router.add_get("/server_info", info.server_info)
    app.router.add_get("/metrics", info.metrics)
    app.router.add_post("/v1/chat/completions", generation.chat)
    app.router.add_post("/v1/completions", generation.complete)
    app.router.add_post("/inference/v1/generate", generation.generate)
    app.router.add_post("/pause", control.pause)
    app.router.add_post("/resume", control.resume)
    app.router.add_get("/is_paused", control.is_paused)
    app.router.add_post("/init_weight_transfer_engine", control.init_engine)
    app.router.add_post("/start_weight_update", control.start)
    app.router.add_post("/update_weights", control.update)
    app.router.add_post("/finish_weight_update", control.finish)
    app.router.add_post("/update_weight_version", control.rename)
    app.router.add_get("/weight_info", control.weight_info)
    app.router.add_post("/collective_rpc", control.call)
    app.router.add_post("/v1/load_lora_adapter", control.no_adapters)
    return app
