"""A run whose episodes are played on servers: a vLLM of its own, or those that others start again.

A server that lost its params by a restart gets them anew.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, cast
from urllib.parse import urlsplit

import torch
from torch import Tensor

from ludic_gym.clients.transport import root_addresses
from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.errors import ClientError, ConfigError, PromptTooLong
from ludic_gym.sampling import leaves_out_tokens
from ludic_gym.types import Completion, Message, Sampling, ToolSchema
from ludic_train.cluster.address import read_address
from ludic_train.cluster.publish.files import FilesPublisher, folder_for
from ludic_train.cluster.publish.lora import PREFIX, LoRAPublisher
from ludic_train.cluster.publish.vllm_transfer import VLLMTransferPublisher, server_backend
from ludic_train.cluster.servers.health import ANSWER_S, PATIENCE_S, POLL_S, server_version
from ludic_train.cluster.servers.process import launched, plugin_folder
from ludic_train.cluster.servers.supervisor import (
    RECENT_S,
    RESTARTS,
    SupervisedServer,
    supervised_server,
)
from ludic_train.cluster.servers.vllm_command import (
    SERVED_DTYPES,
    Installed,
    ServeOptions,
    find_vllm,
)
from ludic_train.distributed.device import kept_params
from ludic_train.errors import PublishError, ServerError
from ludic_train.models.adapters import active_adapter, has_expert_adapters
from ludic_train.models.load import save_model
from ludic_train.models.modules import is_adapted
from ludic_train.models.token_client import token_client
from ludic_train.processes import free_port, printed_progress
from ludic_train.runs.config import RunConfig
from ludic_train.runs.folder import PUBLISHED
from ludic_train.runs.learner import Learner
from ludic_train.runs.machine import Machine
from ludic_train.sources.publisher import PolicyPublisher

LOG = "vllm.log"
# Share of the only GPU for the server, beside the trainer's params, gradients and optimizer.
SHARE = 0.4
# How those of torchrun begin; a vLLM that inherits them takes itself for a rank of the trainer.
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")


class Restartable(Protocol):
    """A server, or several, that may lose their params by a restart."""

    @property
    def starts(self) -> int:
        """Number of starts; the params of an earlier one are lost."""

    async def ready(self) -> None:
        """Return once it responds. Raises ServerError where it will not."""

    async def survived(self, start: int) -> bool:
        """True if the server of that start responds, after a request that failed."""


class OwnPublisher:
    """Publishes to the run's server, and once more to its successor where it was started again.

    make: a publisher for a server that has nothing of the run yet.
    start: number of the server's start to which the newest version was published; 0 before.
    """

    def __init__(self, server: Restartable, make: Callable[[], PolicyPublisher]) -> None:
        self._server, self._make = server, make
        self.start = 0
        self._known: list[tuple[str, Tensor]] = []
        self._copies: dict[str, Tensor] = {}
        self._version = -1
        self._publisher, self._made_for = make(), server.starts
        # Many episodes notice a restart, and one of them publishes.
        self._lock = asyncio.Lock()

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once the server has the params.

        Raises PublishError where a server that responds does not take them, ServerError for one
        that ended too often.
        """
        async with self._lock:
            # An iterator can be read once only.
            self._known = kept_params(params, self._copies)
            # A second stage counts its versions from 0, and names of adapters must not come twice.
            if version <= self._version:
                self._made_for = 0
            self._version = version
            await self._push()

    async def restore(self) -> None:
        """Return once a restarted server has the newest params. Raises as `publish` does."""
        async with self._lock:
            # Of one that was not started again it raises the reason.
            await self._server.ready()
            if self.start != self._server.starts:
                # In one process those that the trainer has now: the tensors are its own.
                await self._push()

    async def _push(self) -> None:
        while True:
            await self._server.ready()
            start = self._server.starts
            if start != self._made_for:
                # Connections and adapters of the earlier server are gone with it.
                self._publisher, self._made_for = self._make(), start
            try:
                await self._publisher.publish(self._known, self._version)
            except PublishError:
                if await self._server.survived(start):
                    raise
            else:
                self.start = start
                return


class OwnClient:
    """Chat client of the run's server; a request that a restart interrupts is repeated.

    client: of the server's address. Errors of a server that still responds are raised.
    """

    def __init__(
        self, client: VLLMTokenClient, server: Restartable, publisher: OwnPublisher
    ) -> None:
        self._client, self._server, self._publisher = client, server, publisher

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next assistant message, of the newest params also after a restart.

        Raises ClientError as the client does, ServerError where the server ended too often.
        """
        return await self._repeated(lambda: self._client.complete(messages, sampling, tools))

    async def continued(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """As `complete`, of token ids."""
        return await self._repeated(lambda: self._client.continued(prompt_ids, sampling))

    async def _repeated(self, request: Callable[[], Awaitable[Completion]]) -> Completion:
        while True:
            start = self._publisher.start
            try:
                return await request()
            # The fault of the request: another server would refuse it too.
            except PromptTooLong:
                raise
            except ClientError:
                if start == self._server.starts and await self._server.survived(start):
                    raise
            await self._publisher.restore()


def usable_vllm(config: RunConfig, machine: Machine) -> Installed:
    """The vLLM that a run starts.

    Raises ConfigError where there is none, or one that cannot serve the run's model.
    """
    vllm = find_vllm(machine.vllm_python)
    if config.model is None and vllm.on_cpu:
        raise ConfigError(
            "engine=vllm, but a tiny model made from nothing has heads of 16 dimensions and vLLM "
            "on a CPU needs 32 or more: name a `model`, or take engine=local"
        )
    # Here too, because the model and its demonstrations come before the server.
    ServeOptions(sampling_mask=leaves_out_tokens(config.sample.sampling)).on_cpu(vllm)
    return vllm


@asynccontextmanager
async def with_own_server(
    learner: Learner,
    config: RunConfig,
    machine: Machine,
    vllm: Installed,
    device: str = "cpu",
) -> AsyncIterator[tuple[Learner, Machine, SupervisedServer]]:
    """The learner and the machine of a run, with a server of its own.

    vllm: result of `usable_vllm`. device: where this process trains.
    learner: with the params of its start. A LoRA model publishes its adapters alone; any other, and
        one with adapters of experts, all params. With a queue, actors sample from the server, and
        the learner stays as it is.
    Raises ServerError for a server that cannot be started, with the end of its log.
    """
    has_actors, model = machine.queue is not None, learner.model
    adapter = model.peft_config[active_adapter(model)] if is_adapted(model) else None
    if has_actors or has_expert_adapters(model):
        adapter = None
    masks = leaves_out_tokens(config.sample.sampling)
    options = ServeOptions(
        # The actors of a resumed run have the address that it had before.
        port=(_port_before(config.out) if has_actors else None) or free_port(),
        dtype=SERVED_DTYPES[config.tune.dtype],
        lora=0 if adapter is None else adapter.r,
        sampling_mask=masks,
        routed_experts=config.tune.router_replay,
    )
    name = _model_to_serve(learner, config)
    lost_s = machine.lost_after
    async with (
        own_server(name, options, vllm, config.out, device, lost_s=lost_s) as server,
        AsyncExitStack() as stack,
    ):
        machine = replace(machine, engine=(server.url,), vllm_python=None)
        if has_actors:
            yield learner, machine, server
            return
        client = token_client(
            server.url,
            learner.tokenizer,
            options=machine.limits.options,
            seeds=False,
            sampling_masks=masks,
        )
        await stack.enter_async_context(aclosing(client))
        folder = stack.enter_context(TemporaryDirectory(prefix="ludic-adapters-"))
        numbers = count(1)

        def make() -> PolicyPublisher:
            if not options.lora:
                return FilesPublisher(server.url, clients=[client], model=model)
            prefix = f"{PREFIX}-{next(numbers)}"
            path = Path(folder) / prefix
            return LoRAPublisher(server.url, path, model, clients=[client], prefix=prefix)

        publisher = OwnPublisher(server, make)
        params = ((name, p.detach()) for name, p in model.named_parameters())
        # An evaluation comes before the first update, and the server has no adapter yet.
        await publisher.publish(params, 0)
        repeating = OwnClient(client, server, publisher)
        yield replace(learner, client=repeating, publisher=publisher), machine, server


def _model_to_serve(learner: Learner, config: RunConfig) -> str:
    """The model that the server is started from; a tiny one made from nothing is written for it."""
    if is_adapted(learner.model):
        # Not `config.model`, which may be the folder of an adapter.
        adapter = learner.model.peft_config[active_adapter(learner.model)]
        return str(adapter.base_model_name_or_path)
    if config.model is not None:
        return config.model
    folder = config.out / PUBLISHED / "model"
    save_model(learner.model, learner.tokenizer, folder)
    return str(folder)


def _port_before(out: Path) -> int | None:
    """Port of the server that an earlier process of the run had here; None without a free one."""
    address = read_address(out)
    if address is None or len(address.servers) != 1:
        return None
    parts = urlsplit(address.servers[0])
    if parts.hostname != ServeOptions().host or parts.port is None:
        return None
    with suppress(ConfigError):
        return free_port(parts.hostname, parts.port)
    return None


@asynccontextmanager
async def own_server(
    model: str,
    options: ServeOptions,
    vllm: Installed,
    out: Path,
    device: str = "cpu",
    *,
    lost_s: float | None = None,
) -> AsyncIterator[SupervisedServer]:
    """A vLLM of this run that responds; its log is OUT/vllm.log. Raises ServerError.

    device: where this process trains. lost_s: as of `SupervisedServer`.
    """
    training: Sequence[int] = []
    if device != "cpu":
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        training = range(ranks) if ranks > 1 else [int(device.removeprefix("cuda:"))]
    flags, env = placed(torch.cuda.device_count(), training, os.environ)
    print(f"starting vLLM {vllm.version} of {vllm.python}; log: {out / LOG}", flush=True)
    with plugin_folder() as plugin:
        start = partial(
            launched, model, options, vllm, flags, plugin=plugin, log=out / LOG, env=env
        )
        async with supervised_server(start, lost_s=lost_s, progress=printed_progress()) as server:
            print(f"vLLM is ready at {server.url}", flush=True)
            yield server


def placed(
    cards: int, training: Sequence[int], env: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Flags and environment of a server beside a trainer.

    cards: number that this process can use. training: those that are trained on. The server gets
    the last card that is free, or a share of the last one; without cards, all that its own build
    finds. It is no rank of the trainer's group.

    >>> placed(2, [0], {"CUDA_VISIBLE_DEVICES": "4,5"})
    (['--max-model-len', 'auto'], {'CUDA_VISIBLE_DEVICES': '5'})
    """
    inherited = {name: value for name, value in env.items() if not name.startswith(RANK_VARIABLES)}
    # As long as memory allows: models are made for far longer prompts than most runs have.
    flags = ["--max-model-len", "auto"]
    if not cards:
        return flags, inherited
    free = [card for card in range(cards) if card not in training]
    if not free:
        flags += ["--gpu-memory-utilization", str(SHARE)]
    visible = (env.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(cards)))).split(",")
    return flags, {**inherited, "CUDA_VISIBLE_DEVICES": visible[(free or training)[-1]]}


class FoundServers:
    """Servers at fixed addresses, used as a `SupervisedServer`: watched, and not started.

    starts: 1, and 1 more for each time that servers were found to be silent, or without the params
    that were published to them.
    """

    def __init__(self, urls: Sequence[str], *, patience_s: float = PATIENCE_S) -> None:
        self.starts = 1
        self._losses: list[float] = []
        self._urls, self._patience_s = root_addresses(urls), patience_s

    async def ready(self) -> None:
        """Return once all servers respond. Raises ServerError after `patience_s` seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        while silent := [url for url, name in (await self._named()).items() if name is None]:
            if loop.time() > until:
                raise ServerError(
                    f"no answer from {', '.join(silent)} for {self._patience_s:g} s: start it "
                    "again, and continue with --resume"
                )
            await asyncio.sleep(POLL_S)

    async def survived(self, start: int) -> bool:
        """True if all servers respond, and have the params that were published to them.

        start: `starts` at the time of the request that failed.
        True also after RESTARTS losses within RECENT_S, so that the failure is raised.
        """
        # A killed process has closed its connections a moment before its port.
        await asyncio.sleep(POLL_S)
        named = await self._named()
        if start != self.starts:
            return False
        # A server that was started again does not call its params by a number.
        if all(name is not None and name.isdecimal() for name in named.values()):
            return True
        now = time.monotonic()
        self._losses = [each for each in self._losses if now - each < RECENT_S]
        if len(self._losses) == RESTARTS:
            return True
        self._losses.append(now)
        self.starts += 1
        return False

    async def _named(self) -> dict[str, str | None]:
        names = await asyncio.gather(*(server_version(url, ANSWER_S) for url in self._urls))
        return dict(zip(self._urls, names, strict=True))


@asynccontextmanager
async def with_found_servers(
    learner: Learner, config: RunConfig, machine: Machine
) -> AsyncIterator[tuple[Learner, Machine, None]]:
    """The learner, whose requests and publications outlive a restart of its servers.

    learner: that samples from the servers of the machine.
    """
    urls, dtype = machine.servers, SERVED_DTYPES[config.tune.dtype]
    client = cast(VLLMTokenClient, learner.client)
    servers = FoundServers(urls)
    await servers.ready()
    backend = await server_backend(urls, learner.model)

    def make() -> PolicyPublisher:
        model, clients = learner.model, [client]
        if backend is not None:
            return VLLMTransferPublisher(urls, model, backend, clients=clients)
        folder = folder_for(urls, config.out)
        return FilesPublisher(urls, folder, clients=clients, model=model, dtype=dtype)

    publisher = OwnPublisher(servers, make)
    async with aclosing(client):
        params = ((name, p.detach()) for name, p in learner.model.named_parameters())
        # Before any request: what fails later was lost since.
        await publisher.publish(params, 0)
        repeating = OwnClient(client, servers, publisher)
        yield replace(learner, client=repeating, publisher=publisher), machine, None
