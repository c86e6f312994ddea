"""vLLM servers that need no model: the routes a trainer uses, and every fault a test asks for.

Params are kept as tensors. A version is served only from whole params: what a request gets is the
digest of all of them, so that a mixture of two versions is seen at once.
"""

import asyncio
import hashlib
from contextlib import asynccontextmanager
from pathlib import Path

import torch
from aiohttp import web
from safetensors.torch import load_file

from ludic_vllm.files import format_of, params_in, require_formats

METRICS = """# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b"} 3.0
vllm:num_requests_running{engine="1",model_name="a b"} 4.0
vllm:num_requests_waiting{engine="0"} 2.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:generation_tokens_total{engine="0"} 12345.0
"""


def digest(params):
    """A name for the values of all params together."""
    text = "".join(f"{n}{t.tolist()}" for n, t in sorted(params.items()))
    return hashlib.sha256(text.encode()).hexdigest()


class FakeVLLM:
    """One server with `ludic serve`'s flags.

    faults: by route, what happens instead of an answer: "500", "hang", "mute" (it is done, and the
        answer does not come), "die" (the server is gone), or seconds that the answer is late.
    answers: by route, what it answers to GET instead: an object, or a text.
    """

    def __init__(self, params):
        self.params = {name: tensor.clone() for name, tensor in params.items()}
        self.version = "default"
        self.faults = {}
        self.answers = {}
        self.calls = []
        self.keys = set()
        self.adapters = {}
        self.paused = False
        self.open = False
        self.staged = {}
        self._resumed = asyncio.Event()
        self._resumed.set()
        self.runner = self.url = None

    async def start(self):
        app = web.Application(middlewares=[self._faulty], client_max_size=2**28)
        app.router.add_post("/{path:.*}", self._post)
        app.router.add_get("/{path:.*}", self._get)
        self.runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self.runner.setup()
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        await web.TCPSite(self.runner, "127.0.0.1", port, reuse_address=True).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    async def stop(self):
        if self.runner is not None:
            await self.runner.cleanup()
            self.runner = None

    async def generate(self):
        """Version and digest for a request; waits while the server is paused."""
        await self._resumed.wait()
        return self.version, digest(self.params)

    @web.middleware
    async def _faulty(self, request, handler):
        self.calls.append(request.path)
        self.keys.add(request.headers.get("Authorization"))
        fault = self.faults.get(request.path)
        if fault == "die":
            asyncio.get_running_loop().create_task(self.stop())
            await asyncio.sleep(60)
        if fault == "hang":
            await asyncio.sleep(60)
        if fault == "mute":
            await handler(request)
            await asyncio.sleep(60)
        if fault == "500":
            return web.json_response({"error": {"message": "out of memory"}}, status=500)
        if isinstance(fault, float):
            await asyncio.sleep(fault)
        try:
            return await handler(request)
        except ValueError as error:
            return web.json_response({"error": {"message": str(error)}}, status=500)

    async def _get(self, request):
        device = {"device_config": {"device": "cpu"}}
        answers = {
            "/health": {},
            "/is_paused": {"is_paused": self.paused},
            "/weight_info": {"weight_version": self.version},
            "/get_world_size": {"world_size": 1},
            "/server_info": {"vllm_config": device},
            "/metrics": METRICS,
        }
        answers |= self.answers
        if isinstance(answers.get(request.path), str):
            return web.Response(text=answers[request.path])
        if request.path not in answers:
            return web.Response(status=404)
        return web.json_response(answers[request.path])

    async def _post(self, request):
        body = await request.json() if request.can_read_body else {}
        route = request.path.strip("/").replace("/", "_")
        handler = getattr(self, f"_{route}", None)
        if handler is None:
            return web.Response(status=404)
        answer = await handler(body)
        return web.json_response(answer or {})

    async def _pause(self, body):
        self.paused = True
        self._resumed.clear()

    async def _resume(self, body):
        self.paused = False
        self._resumed.set()

    async def _start_weight_update(self, body):
        if self.open:
            raise ValueError("start_weight_update called while one is already active")
        self.open, self.staged = True, {}

    async def _update_weights(self, body):
        if not self.open:
            raise ValueError("start_weight_update must be called before update_weights")
        try:
            await self._take(body["update_info"])
        except BaseException:
            self.open = False
            raise

    async def _take(self, info):
        if info.get("abort"):
            raise ValueError("aborted on request")
        params = dict(params_in(info["folder"]))
        formats = {name: format_of(param) for name, param in self.params.items()}
        require_formats(params, formats, {torch.float32, torch.bfloat16})
        self.staged = {name: param.clone() for name, param in params.items()}

    async def _finish_weight_update(self, body):
        if not self.open:
            raise ValueError("finish_weight_update called without a start_weight_update")
        if not self.staged:
            raise ValueError("the update has no params")
        self.params = self.staged
        self.version, self.open = body["weight_version"], False

    async def _update_weight_version(self, body):
        self.version = body["new_version"]

    async def _v1_load_lora_adapter(self, body):
        path = Path(body["lora_path"])
        self.adapters[body["lora_name"]] = load_file(path / "adapter_model.safetensors")

    async def _v1_unload_lora_adapter(self, body):
        del self.adapters[body["lora_name"]]


@asynccontextmanager
async def running(count, params):
    """That many servers of these params."""
    servers = [FakeVLLM(params) for _ in range(count)]
    for server in servers:
        await server.start()
    try:
        yield servers
    finally:
        for server in servers:
            await server.stop()
