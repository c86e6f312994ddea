"""Publishing LoRA adapters, each version under a name of its own, without a pause."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.files import write_file
from ludic_train.cluster.publish.fleet import LIMIT_S, Fleet, OnFailure, Replica
from ludic_train.models.adapters import active_adapter, adapter_params, check_served
from ludic_train.sources.publisher import Stamping

if TYPE_CHECKING:
    from peft import PeftModel

PREFIX = "policy"
# Versions that stay loaded.
KEPT = 2


class Naming(Stamping, Protocol):
    """A client whose requests can name another adapter."""

    def use_model(self, name: str) -> None:
        """Send further requests to this adapter."""

    def in_flight(self, name: str) -> int:
        """Number of requests that still wait for a response of this adapter."""


class LoRAPublisher:
    """Writes each version's adapter to a folder, and has servers load it as "policy-v12".

    folder: on a file system that trainer and servers share, for this run alone.
    model: the one that is trained; its active adapter is published.
    prefix: of the names. A server caches prompts by name, so a second publisher for the same server
        needs another one.
    clients: send further requests to the new name; requests in flight end with the adapter they
        began with. Cached prompts belong to the name, so versions are never mixed.
    Versions older than the newest two are unloaded when no client waits for them. The servers need
    `ludic serve --lora RANK`. The base model is never changed. Raises ConfigError for DoRA, which
    vLLM does not have, and for params that train beside the matrices, and adapters of fused
    experts, which a FilesPublisher takes.
    """

    def __init__(
        self,
        urls: Sequence[str] | str,
        folder: Path | str,
        model: PeftModel,
        *,
        clients: Sequence[Naming] = (),
        prefix: str = PREFIX,
        on_failure: OnFailure = "stop",
        limit_s: float = LIMIT_S,
    ) -> None:
        config = model.peft_config[active_adapter(model)]
        if getattr(config, "use_dora", False):
            raise ConfigError(
                "vLLM has no DoRA adapters, and this one's config has use_dora=True: sample with "
                "the local engine, or train plain LoRA"
            )
        if experts := sorted(getattr(config, "target_parameters", None) or ()):
            raise ConfigError(
                f"the adapter changes {experts}, the fused experts of a mixture, which vLLM reads "
                "under other names for each architecture: publish it merged, "
                "FilesPublisher(urls, model=model)"
            )
        check_served(model, adapter_alone=True)
        self.fleet = Fleet(urls, clients, on_failure, limit_s)
        self._folder = Path(folder)
        self._model, self._config = model, config
        self._clients = clients
        self._prefix = prefix
        self._loaded: list[int] = []

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once all further completions come from the adapter in `params`.

        Raises PublishError with the servers and phases that failed, ConfigError where `params` has
        no adapter, or the folder has that version already.
        """
        path, name = self._folder / f"v{version:06d}", self._name(version)
        # All params are read before anything can fail: sharded ones need every rank to the end.
        matrices = {
            n: t.detach().cpu().contiguous() for n, t in adapter_params(params, self._model)
        }
        if not matrices:
            raise ConfigError("params have no LoRA matrices: publish them all instead")
        if path.exists():
            # vLLM may keep what it read there before.
            raise ConfigError(f"{path} exists already: give each run a folder of its own")
        try:
            # In peft's format.
            await write_file(path / "adapter_model.safetensors", matrices)
            self._config.save_pretrained(str(path))
        except BaseException:
            # The version may be published once more.
            shutil.rmtree(path, ignore_errors=True)
            raise

        async def load(replica: Replica) -> None:
            body = {"lora_name": name, "lora_path": str(path.resolve())}
            await replica.server.post("/v1/load_lora_adapter", body)
            replica.version = version

        fleet = self.fleet
        async with aclosing(fleet):
            await fleet.connect("/health")
            await fleet.run("update", fleet.in_state("ready"), load)
            # After all servers have loaded it: a request for an unknown name is an error.
            for client in self._clients:
                client.use_model(name)
            fleet.stamp(version, "ready")
            self._loaded.append(version)
            await self._unload_unused()

    def _name(self, version: int) -> str:
        """Model name of a version in requests, such as "policy-v12"."""
        return f"{self._prefix}-v{version}"

    async def _unload_unused(self) -> None:
        """Unload the adapters older than the newest KEPT for which no client waits."""
        for version in self._loaded[:-KEPT]:
            name = self._name(version)
            # Unloading an adapter would end the requests that still use it.
            if any(client.in_flight(name) for client in self._clients):
                continue

            body = {"lora_name": name}
            unload = partial(_post, path="/v1/unload_lora_adapter", body=body)
            await self.fleet.run("update", self.fleet.in_state("ready"), unload)
            shutil.rmtree(self._folder / f"v{version:06d}")
            self._loaded.remove(version)


async def _post(replica: Replica, *, path: str, body: Mapping[str, str]) -> None:
    await replica.server.post(path, body)
