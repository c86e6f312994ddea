"""Publishing through a folder of checkpoints that servers read again: works with any vLLM."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.publishers.base import Stamping
from ludic_train.publishers.checkpoint_names import checkpoint_params
from ludic_train.publishers.control import ControlClient, PhaseLimits
from ludic_train.publishers.fleet import Fleet, OnFailure, Replica
from ludic_train.publishers.vllm import stamp

KEPT = 2


class ReloadPublisher:
    """Writes a checkpoint into a fresh folder per version, and has servers load it.

    folder: on a file system that trainer and servers share, for this run alone; the newest two
        versions are kept.
    Everything else is as in VLLMPublisher, but that a server which fails while it loads has a
    mixture: it is left paused, and has to be started again.
    """

    def __init__(
        self,
        urls: Sequence[str] | str,
        folder: Path | str,
        *,
        clients: Sequence[Stamping] = (),
        on_failure: OnFailure = "stop",
        limits: PhaseLimits | None = None,
        lora_scaling: float | None = None,
        keep: Callable[[str], bool] = lambda name: True,
    ) -> None:
        addresses = [urls] if isinstance(urls, str) else list(urls)
        self.fleet = Fleet(addresses, on_failure, limits or PhaseLimits())
        self._folder = Path(folder)
        self._clients = clients
        self._lora_scaling = lora_scaling
        self._keep = keep

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once everything sampled from here on comes from `params`, named `version`.

        Raises PublishError that names the servers and phases that failed, ConfigError where the
        folder has that version already.
        """
        named = checkpoint_params(params, lora_scaling=self._lora_scaling, keep=self._keep)
        path = write_checkpoint(self._folder / f"v{version:06d}", dict(named))
        fleet = self.fleet
        async with fleet.opened():
            await fleet.run("connect", fleet.in_state("new", "failed"), _greet, then="ready")
            await fleet.run("pause", fleet.in_state("ready"), _pause, then="updating")
            updating = fleet.in_state("updating")
            try:
                await fleet.run("update", updating, lambda r, s: _reload(r, s, path, version))
            except BaseException:
                await fleet.attempt("resume", fleet.in_state("updating"), _resume)
                raise
            stamp(self._clients, version, fleet.in_state("updating"))
            await fleet.run("resume", fleet.in_state("updating"), _resume, then="ready")
        for old in sorted(self._folder.glob("v*"))[:-KEPT]:
            shutil.rmtree(old)


def write_checkpoint(path: Path, params: dict[str, Tensor]) -> Path:
    """A new folder that holds the params; complete when it appears.

    Raises ConfigError if there is one already: vLLM may go on with what it read there before.
    """
    from safetensors.torch import save_file

    if path.exists():
        raise ConfigError(f"{path} exists already: give each run a folder of its own")
    unfinished = path.with_name(f".{path.name}.incomplete")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in params.items()}
    save_file(cpu, unfinished / "model.safetensors", metadata={"format": "pt"})
    unfinished.rename(path)
    return path.resolve()


async def _greet(replica: Replica, server: ControlClient) -> None:
    await server.get("/weight_info")
    replica.error, replica.version = "", None


async def _pause(replica: Replica, server: ControlClient) -> None:
    await server.pause()


async def _resume(replica: Replica, server: ControlClient) -> None:
    await server.resume()


async def _reload(replica: Replica, server: ControlClient, path: Path, version: int) -> None:
    await server.call_workers("reload_weights", weights_path=str(path))
    if await _on_cpu(server):
        await server.call_workers("ludic_repair_tied_head")
    await server.post("/update_weight_version", {"new_version": str(version)})
    replica.version = version


async def _on_cpu(server: ControlClient) -> bool:
    config = (await server.get("/server_info?config_format=json"))["vllm_config"]
    return bool(config["device_config"]["device"] == "cpu")
