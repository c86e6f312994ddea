"""Routes for the state of the server."""

from __future__ import annotations

from aiohttp import web

from ludic_train.cluster.servers.local.responses import SERVED, reply
from ludic_vllm import BACKEND


async def health(request: web.Request) -> web.Response:
    """GET /health: an empty response with status 200, as soon as the server listens."""
    return web.Response()


async def models(request: web.Request) -> web.Response:
    """GET /v1/models: the one served model, in OpenAI's format.

    `max_model_len` is its number of positions, prompt and completion together.
    """
    served = request.app[SERVED]
    card = {
        "id": served.name,
        "object": "model",
        "created": served.started,
        "owned_by": "ludic",
        "root": served.name,
        "parent": None,
        "max_model_len": served.client.max_positions,
    }
    return reply({"object": "list", "data": [card]})


async def server_info(request: web.Request) -> web.Response:
    """GET /server_info: the part of vLLM's config that concerns sampling.

    `ludic doctor` compares it with the needs of a trainer. "engine" distinguishes it from vLLM.
    """
    served = request.app[SERVED]
    # All params have the dtype and the device of the first one.
    weight = next(served.model.parameters())
    config = {
        "model_config": {
            "model": served.name,
            "dtype": str(weight.dtype),
            "max_model_len": served.client.max_positions,
            "logprobs_mode": "processed_logprobs",
            "generation_config": "vllm",
        },
        "weight_transfer_config": {"backend": BACKEND},
        "device_config": {"device": weight.device.type},
    }
    return reply({"engine": "local", "vllm_config": config})


async def metrics(request: web.Request) -> web.Response:
    """GET /metrics: counts since the start and current load, under vLLM's names.

    The format is Prometheus' text format; the one label is the name of the model.
    """
    served = request.app[SERVED]
    counts, client = served.counts, served.client
    queried, found = client.prefix_tokens
    numbers = {
        "num_requests_running": served.gate.running,
        "num_requests_waiting": served.gate.waiting,
        # The cache grows with the batch, so the batch is the resource that can be full.
        "kv_cache_usage_perc": min(1.0, client.in_flight / client.max_batch_size),
        "prompt_tokens_total": counts.prompt_tokens,
        "prefix_cache_queries_total": queried,
        "prefix_cache_hits_total": found,
        "generation_tokens_total": client.num_sampled,
        "request_success_total": counts.completions,
    }
    # Prometheus' escapes of a label; a folder's name can hold any of these characters.
    label = served.name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    lines = []
    for name, value in numbers.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE vllm:{name} {kind}", f'vllm:{name}{{model_name="{label}"}} {value}']
    return web.Response(text="\n".join([*lines, ""]))
