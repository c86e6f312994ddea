"""Params by vLLM's own weight-transfer engines, where vLLM is installed beside the trainer.

All of the transfer is vLLM's: this module names the servers to it, pauses and resumes them. It is
the only one of a trainer that imports vLLM, and it does so when it publishes.

What ran where: nothing here has moved params between cards yet, since no machine with cards was at
hand. The calls are those of vLLM 0.32's trainer side, and tests hold them against a stand-in.
"""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from ludic_gym.clients.openai import root_addresses
from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.control import ControlClient, PhaseLimits
from ludic_train.cluster.publish.files import FilesPublisher, outgoing
from ludic_train.cluster.publish.fleet import Fleet, Replica
from ludic_train.errors import PublishError
from ludic_train.models.checkpoint_names import checkpoint_params
from ludic_train.processes import free_port
from ludic_train.sources.publisher import PolicyPublisher, Stamping

Params = Iterable[tuple[str, Tensor]]
# Backends of vLLM by which one process sends all params.
BACKENDS = ("nccl", "ipc")


class VLLMTransferPublisher:
    """Has vLLM send each version to servers that were started with `--weight-transfer-config`.

    urls: of the servers. model: the one that is trained, on the card that sends.
    backend: "nccl" for other cards than the trainer's, "ipc" for the same card; for "ipc" the
        servers need VLLM_ALLOW_INSECURE_SERIALIZATION=1, as vLLM sends handles as pickles.
    clients: get each version. limits: time limits of each phase; "update" is that of the transfer.
    Servers are paused while they load. One that fails in it has a mixture of versions: it stays
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
        limits: PhaseLimits | None = None,
    ) -> None:
        if backend not in BACKENDS:
            raise ConfigError(f"backend={backend!r} is none of {', '.join(BACKENDS)}")
        if not has_vllm():
            raise ConfigError(f"backend={backend!r} needs vLLM in the trainer's environment")
        self.fleet = Fleet(urls, clients, "stop", limits)
        self._model, self._backend = model, backend
        self._source = _Source(model)
        self._servers = _Servers(self.fleet, timeout_s=self.fleet.limits.update)
        self._engine: Any = None

    async def publish(self, params: Params, version: int) -> None:
        """Return once all further completions come from `params`, under the name `version`.

        Raises PublishError with the servers and phases that failed.
        """
        fleet = self.fleet
        self._source.params, self._servers.version = params, version

        async def check(replica: Replica) -> None:
            found = (await replica.server.get("/weight_info")).get("weight_version")
            if found != str(version):
                raise PublishError(f"it has version {found!r} after version {version} was sent")
            replica.version = version

        async with aclosing(fleet):
            if self._engine is None:
                await fleet.connect("/weight_info")
                self._servers.sizes = [await r.server.world_size() for r in fleet.replicas]
                self._engine = await self._called("connect", self._connect)
            await self._pause()
            await self._called("update", self._engine.send_weights)
            await fleet.run("finish", fleet.in_state("updating"), check)
            fleet.stamp(version, "updating")
            updating = fleet.in_state("updating")
            await fleet.run("resume", updating, lambda r: r.server.resume(), then="ready")

    async def _pause(self) -> None:
        """Pause all servers; none stays paused if one cannot be."""
        fleet = self.fleet
        ready = fleet.in_state("ready")
        try:
            await fleet.run("pause", ready, lambda r: r.server.pause(), then="updating")
        except BaseException:
            await fleet.attempt("resume", ready, lambda r: r.server.resume())
            for replica in fleet.in_state("updating"):
                replica.state = "ready"
            raise

    async def _called(self, phase: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - vLLM's
        """Result of a call of vLLM's in a thread; errors of any kind as PublishError."""
        limit_s: float = getattr(self.fleet.limits, phase)

        def on_card() -> Any:  # noqa: ANN401
            # The current device belongs to the thread.
            if (device := next(self._model.parameters()).device).type == "cuda":
                torch.cuda.set_device(device)
            return call()

        try:
            async with asyncio.timeout(limit_s):
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

            host = _own_address(self.fleet.replicas[0].url)
            info = NCCLTrainerInitInfo(
                rank=0,
                master_address=host,
                master_port=free_port(host),
                world_size=1 + sum(self._servers.sizes),
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
    """The servers of a fleet, called together as vLLM's `VLLMWeightSyncClient`."""

    def __init__(self, fleet: Fleet, timeout_s: float) -> None:
        self._fleet, self._timeout_s = fleet, timeout_s
        self.sizes: Sequence[int] = ()
        self.version = -1

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        """Connect all workers; those of each server come after those of the server before."""
        infos = []
        for place in range(len(self.sizes)):
            info = dict(init_info)
            if "rank_offset" in info:
                info["rank_offset"] += sum(self.sizes[:place])
            infos.append((info,))
        self._call("init_weight_transfer_engine", infos)

    def start_weight_update(self) -> None:
        """Begin to load."""
        self._call("start_weight_update", [()] * len(self.sizes))

    def update_weights(self, update_info: Any) -> None:  # noqa: ANN401 - of the backend
        """Return when all workers have received the params."""
        self._call("update_weights", [(update_info,)] * len(self.sizes))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Give the params the name of the version."""
        name = weight_version or str(self.version)
        self._call("finish_weight_update", [(name,)] * len(self.sizes))

    def _call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> None:
        from vllm.distributed.weight_transfer import HTTPVLLMWeightSyncClient

        with ThreadPoolExecutor(len(arguments)) as pool:
            calls = [
                pool.submit(
                    getattr(HTTPVLLMWeightSyncClient(replica.url, self._timeout_s), method), *given
                )
                for replica, given in zip(self._fleet.replicas, arguments, strict=True)
            ]
            for call in calls:
                call.result()


class ServerPublisher:
    """Publishes as the servers were started for, which it asks them at the first publication.

    By vLLM's own engine where they have one, and vLLM and a card are here; by files otherwise. It
    prints which. Arguments as of FilesPublisher.
    """

    def __init__(
        self,
        urls: Sequence[str] | str,
        folder: Path | str | None = None,
        *,
        clients: Sequence[Stamping] = (),
        model: nn.Module,
        dtype: str = "auto",
    ) -> None:
        self._urls, self._clients, self._model = root_addresses(urls), clients, model
        self._files = FilesPublisher(urls, folder, clients=clients, model=model, dtype=dtype)
        self._publisher: PolicyPublisher | None = None

    async def publish(self, params: Params, version: int) -> None:
        """As that of FilesPublisher."""
        if self._publisher is None:
            self._publisher = await self._chosen()
        await self._publisher.publish(params, version)

    async def _chosen(self) -> PolicyPublisher:
        """The publisher for these servers. Raises PublishError for one that does not respond."""
        backends = {await _backend(url) for url in self._urls}
        on_card = next(self._model.parameters()).is_cuda
        if len(backends) == 1 and (name := backends.pop()) in BACKENDS and has_vllm() and on_card:
            print(f"params go to the servers by vLLM's own {name}", flush=True)
            return VLLMTransferPublisher(self._urls, self._model, name, clients=self._clients)
        print("params go to the servers by files", flush=True)
        return self._files


def has_vllm() -> bool:
    """True if vLLM can be imported here."""
    return importlib.util.find_spec("vllm") is not None


async def _backend(url: str) -> str:
    """Name of the transfer engine that a server was started with; "" if it does not say."""
    async with aclosing(ControlClient(url)) as server:
        config = await server.config()
    return str((config.get("weight_transfer_config") or {}).get("backend", ""))


def _own_address(url: str) -> str:
    """This machine's address as the server at `url` sees it. Raises OSError without a route."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # No packet is sent: the kernel only chooses the address that it would send from.
        probe.connect((parts.hostname or "127.0.0.1", parts.port or 80))
        return str(probe.getsockname()[0])
