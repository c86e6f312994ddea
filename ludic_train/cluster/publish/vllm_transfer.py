"""Params by vLLM's own weight-transfer engines, where vLLM is installed beside the trainer.

All of the transfer is vLLM's: this module names the servers to it, pauses and resumes them. It is
the only one of a trainer that imports vLLM, and it does so when it publishes.

What ran where: on a CPU, with vLLM 0.32's own trainer classes, up to their broadcast; tests have a
stand-in for them. No transfer between cards has run.
"""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from ludic_gym.clients.transport import root_addresses
from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.control import ControlClient, backend_of
from ludic_train.cluster.publish.files import Params, outgoing
from ludic_train.cluster.publish.fleet import LIMIT_S, Fleet
from ludic_train.errors import PublishError
from ludic_train.models.adapters import check_served
from ludic_train.models.checkpoint_names import checkpoint_params
from ludic_train.processes import free_port
from ludic_train.sources.publisher import Stamping

# Backends of vLLM by which one process sends all params.
BACKENDS = ("nccl", "ipc")


class VLLMTransferPublisher:
    """Has vLLM send each version to servers of `ludic serve --transfer nccl` or `ipc`.

    urls: of the servers. model: the one that is trained, on the card that sends.
    backend: "nccl" for other cards than the trainer's, "ipc" for the same card; for "ipc" the
        servers need VLLM_ALLOW_INSECURE_SERIALIZATION=1, as vLLM sends handles as pickles.
    clients: get each version. limit_s: time limit of each phase, of the transfer too.
    Servers are paused while they load. One that fails then has a mixture of versions: it stays
    paused, and has to be started again.
    Raises ConfigError for another backend, and where vLLM is not installed here.
    """

    def __init__(
        self,
        urls: Sequence[str] | str,
        model: nn.Module,
        backend: str = "nccl",
        *,
        clients: Sequence[Stamping] = (),
        limit_s: float = LIMIT_S,
    ) -> None:
        if backend not in BACKENDS:
            raise ConfigError(f"backend={backend!r} is none of {', '.join(BACKENDS)}")
        if not has_vllm():
            raise ConfigError(f"backend={backend!r} needs vLLM in the trainer's environment")
        check_served(model)
        self.fleet = Fleet(urls, clients, "stop", limit_s)
        self._model, self._backend = model, backend
        self._source, self._servers = _Source(model), _Servers(self.fleet)
        self._engine: Any = None

    async def publish(self, params: Params, version: int) -> None:
        """Return once all further completions come from `params`, under the name `version`.

        Raises PublishError with the servers and phases that failed.
        """
        self._source.params, self._servers.version = params, version
        fleet = self.fleet
        async with aclosing(fleet):
            await fleet.connect("/weight_info")
            if self._engine is None:
                self._servers.sizes = [await r.server.world_size() for r in fleet.replicas]
                self._engine = await self._in_thread("connect", self._connect)
            ready = fleet.in_state("ready")
            try:
                await fleet.run("pause", ready, lambda r: r.server.pause())
            except PublishError:
                await fleet.attempt(ready, lambda r: r.server.resume())
                raise
            await self._in_thread("update", self._engine.send_weights)
            await fleet.run("finish", ready, lambda r: r.server.require_version(version))
            fleet.stamp(version, "ready")
            await fleet.run("resume", ready, lambda r: r.server.resume())
            for replica in ready:
                replica.version = version

    async def _in_thread(self, phase: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - vLLM's
        """Result of a call of vLLM's; errors of any kind as PublishError."""

        def on_card() -> Any:  # noqa: ANN401
            # The current device belongs to the thread.
            if (device := next(self._model.parameters()).device).type == "cuda":
                torch.cuda.set_device(device)
            return call()

        try:
            async with asyncio.timeout(self.fleet.limit_s):
                return await asyncio.to_thread(on_card)
        except Exception as error:
            # A group that has lost a member cannot be used again.
            self._engine = None
            for replica in self.fleet.replicas:
                replica.state, replica.phase, replica.error = "failed", phase, str(error)
            raise PublishError(f"vLLM's {self._backend} failed in {phase}: {error!r}") from error

    def _connect(self) -> Any:  # noqa: ANN401 - a class of vLLM
        """The engine that sends, connected to all workers."""
        from vllm.distributed.weight_transfer import WeightTransferTrainerFactory

        info: Any
        if self._backend == "ipc":
            from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

            info = IPCTrainerInitInfo(rank=0)
        else:
            from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

            host = own_address(self.fleet.replicas[0].url)
            size, port = 1 + sum(self._servers.sizes), free_port(host)
            info = NCCLTrainerInitInfo(
                rank=0, master_address=host, master_port=port, world_size=size
            )
        return WeightTransferTrainerFactory.trainer_init(
            info, client=self._servers, source=self._source
        )


class _Source:
    """The params of a publication, as vLLM's `WeightSource` has them."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.params: Params = ()

    def metadata(self) -> list[Any]:
        """Name, dtype and shape of each param that is sent, without its values."""
        from vllm.distributed.weight_transfer import ParamMeta

        meta = ((n, torch.empty_like(p, device="meta")) for n, p in self._model.named_parameters())
        sent = checkpoint_params(meta, self._model)
        return [ParamMeta(name, p.dtype, tuple(p.shape)) for name, p in sent]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, param in outgoing(checkpoint_params(self.params, self._model), None):
            yield name, param.to(next(self._model.parameters()).device)


class _Servers:
    """The servers of a fleet, called together as vLLM's `VLLMWeightSyncClient`.

    sizes: number of workers of each. version: name that the params get at the end.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.sizes: Sequence[int] = ()
        self.version = -1

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        """Connect all workers; those of a server come after those of the servers before it."""
        infos = [dict(init_info) for _ in self.sizes]
        if "rank_offset" in init_info:
            for place, info in enumerate(infos):
                info["rank_offset"] += sum(self.sizes[:place])
        self._call("init_weight_transfer_engine", infos)

    def start_weight_update(self) -> None:
        """Begin to load."""
        self._call("start_weight_update")

    def update_weights(self, update_info: Any) -> None:  # noqa: ANN401 - of the backend
        """Return when all workers have received the params."""
        self._call("update_weights", [update_info] * len(self.sizes))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Give the params the name of the version."""
        name = weight_version or str(self.version)
        self._call("finish_weight_update", [name] * len(self.sizes))

    def _call(self, method: str, arguments: Sequence[Any] = ()) -> None:
        """Call a method of vLLM's own client of each server, with an argument of its own if any."""
        from vllm.distributed.weight_transfer import HTTPVLLMWeightSyncClient

        def call(place: int) -> None:
            url = self._fleet.replicas[place].url
            client = HTTPVLLMWeightSyncClient(url, self._fleet.limit_s)
            getattr(client, method)(*arguments[place : place + 1])

        with ThreadPoolExecutor(len(self.sizes)) as pool:
            list(pool.map(call, range(len(self.sizes))))


async def server_backend(urls: Sequence[str], model: nn.Module) -> str | None:
    """The engine of vLLM by which servers can get the params of a model; None for files.

    One of BACKENDS if all servers were started with it, and vLLM and a card are here. Prints which.
    Raises PublishError for a server that does not respond.
    """
    backends = set()
    for url in root_addresses(urls):
        async with aclosing(ControlClient(url)) as server:
            backends.add(backend_of(await server.config()))
    name = backends.pop() if len(backends) == 1 else ""
    by_vllm = name in BACKENDS and has_vllm() and next(model.parameters()).is_cuda
    way = f"vLLM's own {name}" if by_vllm else "files"
    print(f"params go to the servers by {way}", flush=True)
    return name if by_vllm else None


def has_vllm() -> bool:
    """True if vLLM can be imported here."""
    return importlib.util.find_spec("vllm") is not None


def own_address(url: str) -> str:
    """This machine's address as the server at `url` sees it. Raises OSError without a route."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # No packet is sent: the kernel only chooses the address that it would send from.
        probe.connect((parts.hostname or "127.0.0.1", parts.port or 80))
        return str(probe.getsockname()[0])
