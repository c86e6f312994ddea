"""Publishing LoRA adapters, each version under a name of its own: nothing pauses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.publishers.checkpoint_names import adapter_params
from ludic_train.publishers.control import ControlClient, PhaseLimits
from ludic_train.publishers.fleet import Call, Fleet, OnFailure, Replica

KEPT = 2


class Naming(Protocol):
    """A client whose requests can go to another adapter."""

    policy_version: int | None

    def use(self, urls: Sequence[str]) -> None:
        """Ask only these servers from now on."""

    def use_model(self, name: str) -> None:
        """Ask for this adapter from now on."""

    def in_flight(self, name: str) -> int:
        """How many requests still wait for an answer of this adapter."""


class LoRAPublisher:
    """Writes each version's adapter to a folder, and has servers load it as "policy-v12".

    folder: on a file system that trainer and servers share, for this run alone.
    config: the adapter's, as peft has it: `model.peft_config["default"]`.
    clients: sent to the new name; requests in flight end with the adapter they began with, and
        what was computed for their prompts is never mixed up, because it belongs to the name.
    Versions older than the newest two are unloaded when no client waits for them. The servers need
    `ludic serve --lora RANK`. The base model is never changed.
    """

    def __init__(
        self,
        urls: Sequence[str] | str,
        folder: Path | str,
        config: PeftConfig,
        *,
        clients: Sequence[Naming] = (),
        name: str = "policy",
        on_failure: OnFailure = "stop",
        limits: PhaseLimits | None = None,
    ) -> None:
        addresses = [urls] if isinstance(urls, str) else list(urls)
        self.fleet = Fleet(addresses, on_failure, limits or PhaseLimits())
        self._folder = Path(folder)
        self._config = config
        self._clients = clients
        self._name = name
        self._loaded: list[int] = []

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once everything sampled from here on comes from the adapter in `params`.

        Raises PublishError that names the servers and phases that failed, ConfigError where there
        is no adapter in `params`.
        """
        path = write_adapter(self._folder / f"v{version:06d}", params, self._config.to_dict())
        fleet, name = self.fleet, self.model_name(version)
        async with fleet.opened():
            await fleet.run("connect", fleet.in_state("new", "failed"), _greet, then="ready")
            await fleet.run("update", fleet.in_state("ready"), _load(name, path, version))
            for client in self._clients:
                client.use([replica.url for replica in fleet.in_state("ready")])
                client.use_model(name)
                client.policy_version = version
            self._loaded.append(version)
            await self._unload_unused()

    def model_name(self, version: int) -> str:
        """What requests for a version name as their model."""
        return f"{self._name}-v{version}"

    async def _unload_unused(self) -> None:
        for version in self._loaded[:-KEPT]:
            name = self.model_name(version)
            if any(client.in_flight(name) for client in self._clients):
                continue
            await self.fleet.run("update", self.fleet.in_state("ready"), _unload(name))
            shutil.rmtree(self._folder / f"v{version:06d}")
            self._loaded.remove(version)


class PeftConfig(Protocol):
    """The part of peft's config that is read."""

    def to_dict(self) -> dict[str, Any]:
        """All its settings."""


def write_adapter(
    path: Path, params: Iterable[tuple[str, Tensor]], config: Mapping[str, Any]
) -> Path:
    """A new folder in peft's format; complete when it appears.

    Raises ConfigError if there is one already, or nothing to write.
    """
    from safetensors.torch import save_file

    matrices = {n: t.detach().cpu().contiguous() for n, t in adapter_params(params)}
    if not matrices:
        raise ConfigError("there are no LoRA matrices among the params: publish them all instead")
    if path.exists():
        raise ConfigError(f"{path} exists already: give each run a folder of its own")
    unfinished = path.with_name(f".{path.name}.incomplete")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    save_file(matrices, unfinished / "adapter_model.safetensors", metadata={"format": "pt"})
    text = json.dumps(config, default=_plain, indent=2)
    (unfinished / "adapter_config.json").write_text(text, encoding="utf-8")
    unfinished.rename(path)
    return path.resolve()


def _plain(value: object) -> object:
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else str(value)


async def _greet(replica: Replica, server: ControlClient) -> None:
    await server.get("/health")
    replica.error, replica.version = "", None


def _load(name: str, path: Path, version: int) -> Call:
    async def load(replica: Replica, server: ControlClient) -> None:
        await server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)})
        replica.version = version

    return load


def _unload(name: str) -> Call:
    async def unload(replica: Replica, server: ControlClient) -> None:
        await server.post("/v1/unload_lora_adapter", {"lora_name": name})

    return unload
