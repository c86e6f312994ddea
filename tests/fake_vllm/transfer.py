"""The trainer's side of vLLM's weight transfer, as far as `vllm_transfer` calls it.

Names, arguments and order of calls are those of vLLM 0.32. In place of a broadcast between cards,
params go through the list `SENT`.
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import torch
from fake_vllm.fleet import FakeVLLM

SENT = []


@dataclass(frozen=True)
class ParamMeta:
    name: str
    dtype: torch.dtype
    shape: tuple


@dataclass
class NCCLTrainerInitInfo:
    master_address: str
    master_port: int
    world_size: int
    rank: int = field(kw_only=True)


@dataclass
class IPCTrainerInitInfo:
    rank: int = field(kw_only=True)


class HTTPVLLMWeightSyncClient:
    def __init__(self, base_url, timeout=300):
        self.base_url, self.timeout = base_url.rstrip("/"), timeout

    def _post(self, path, body=None):
        headers = {"Content-Type": "application/json"}
        request = Request(f"{self.base_url}/{path}", json.dumps(body or {}).encode(), headers)
        try:
            with urlopen(request, timeout=self.timeout) as answer:
                answer.read()
        except HTTPError as error:
            with error:
                raise RuntimeError(f"{path}: {error.code}") from None

    def init_weight_transfer_engine(self, init_info):
        self._post("init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self):
        self._post("start_weight_update")

    def update_weights(self, update_info):
        self._post("update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version=None):
        self._post("finish_weight_update", {"weight_version": weight_version})


class Engine:
    def __init__(self, client, source):
        self.client, self.source = client, source

    def send_weights(self):
        meta = self.source.metadata()
        self.client.start_weight_update()
        SENT[:] = [(name, tensor.clone()) for name, tensor in self.source]
        assert [(m.name, m.dtype, m.shape) for m in meta] == [
            (name, tensor.dtype, tuple(tensor.shape)) for name, tensor in SENT
        ]
        self.client.update_weights({"names": [m.name for m in meta]})
        self.client.finish_weight_update()


class WeightTransferTrainerFactory:
    @classmethod
    def trainer_init(cls, init_info, *, client, source=None):
        info = asdict(init_info)
        del info["rank"]
        if isinstance(init_info, NCCLTrainerInitInfo):
            info["rank_offset"] = 1
        client.init_weight_transfer_engine(info)
        return Engine(client, source)


class TransferVLLM(FakeVLLM):
    """A server of `--transfer nccl`: it loads what is sent, and has a mixture in between."""

    joined = None

    async def _init_weight_transfer_engine(self, body):
        self.joined = body["init_info"]

    async def _take(self, info):
        assert self.paused
        self.staged = {name: tensor for name, tensor in SENT if name in info["names"]}


def install(monkeypatch):
    """Put a package named vllm that has these names into `sys.modules`."""
    inner = "vllm.distributed.weight_transfer"
    contents = {
        "vllm": {},
        "vllm.distributed": {},
        inner: {
            each.__name__: each
            for each in (ParamMeta, HTTPVLLMWeightSyncClient, WeightTransferTrainerFactory)
        },
        f"{inner}.nccl_engine": {"NCCLTrainerInitInfo": NCCLTrainerInitInfo},
        f"{inner}.ipc_engine": {"IPCTrainerInitInfo": IPCTrainerInitInfo},
    }
    for name, names in contents.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__path__ = []
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)
