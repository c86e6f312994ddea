"""A package named vllm whose server samples: Ludic's local engine, or a fake that takes adapters.

Params come over vLLM's routes, so a run with `--engine vllm` cannot tell it from vLLM.
"""

import json
import os
import sys
from pathlib import Path

from aiohttp import web
from fake_vllm.install import install

SERVER = """
import sys
from fake_vllm.stand_in import serve
serve(sys.argv[1:])
"""
# Path of a file: while it exists, a server ends during its start.
BROKEN = "LUDIC_STAND_IN_BROKEN"
# What the file holds where a server with adapters is to end at its first request instead.
AT_REQUESTS = "at requests"


def install_stand_in(folder, monkeypatch, *, name="vllm"):
    """The Python whose vLLM this is, for --vllm-python; and the file that breaks it."""
    python = install(folder, name=name)
    (folder / "vllm" / "entrypoints" / "openai" / "api_server.py").write_text(SERVER)
    tests = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{tests}:{tests.parent}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv(BROKEN, str(folder / "broken"))
    return python, folder / "broken"


def flag(words, name):
    return words[words.index(name) + 1]


def serve(words):
    """Serve until a signal comes, as the words of vLLM's command line have it."""
    broken = Path(os.environ[BROKEN])
    if broken.exists() and broken.read_text() != AT_REQUESTS:
        sys.exit("RuntimeError: not enough memory")
    model, port = flag(words, "--model"), int(flag(words, "--port"))
    print("started with", json.dumps(words), flush=True)
    if "--enable-lora" in words:
        serve_adapters(model, port)
        return
    from ludic_train.agents.serving import serve_local
    from ludic_train.processes import bound_socket, stop_by_signal

    with stop_by_signal(), bound_socket("127.0.0.1", port) as bound:
        serve_local(model, bound, threads=1)


def serve_adapters(model, port):
    """A server of a base model and of the adapters that are loaded."""
    import asyncio

    import peft
    import torch
    from fake_vllm.sampler import SamplingVLLM

    from ludic_train.models.load import load_model

    class WithAdapters(SamplingVLLM):
        async def _v1_load_lora_adapter(self, body):
            name = body["lora_name"]
            adapted = peft.PeftModel.from_pretrained(load_model(model)[0], body["lora_path"])
            self.adapters[name] = adapted.merge_and_unload()
            print("loaded", name, flush=True)

        async def _inference_v1_generate(self, body):
            base, name = self.model, body["model"]
            if name not in {"m", *self.adapters}:
                raise web.HTTPNotFound(text=f"the model {name} does not exist")
            if Path(os.environ[BROKEN]).exists():
                print("EngineDeadError: no such kernel", flush=True)
                # As vLLM does, whose engine is a process of its own.
                os._exit(0)
            self.model = self.adapters.get(name, base)
            try:
                answer = await super()._inference_v1_generate(body)
            finally:
                self.model = base
            return answer

        def _logits(self, ids):
            return self.model(torch.tensor([ids])).logits[0, -1]

    async def forever():
        server = WithAdapters(*load_model(model))
        server.url = f"http://127.0.0.1:{port}"
        await server.start()
        await asyncio.Event().wait()

    asyncio.run(forever())
