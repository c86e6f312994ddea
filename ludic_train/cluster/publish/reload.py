"""Publishing through a folder of checkpoints that servers load again: works with any vLLM."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor, nn

from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.control import ControlClient, PhaseLimits
from ludic_train.cluster.publish.fleet import Fleet, OnFailure, Replica
from ludic_train.models.checkpoint_names import checkpoint_params
from ludic_train.sources.publisher import Stamping

KEPT = 2


class ReloadPublisher:
    """Writes a checkpoint into a new folder per version, and has servers load it.

    folder: on a file system that trainer and servers share, for this run alone; the newest two
        versions are kept.
    All other arguments are as in VLLMPublisher. A server that fails while it loads has a mixture
    of versions: it stays paused, and must be started again.
    """

    def __init__(
        self,
        urls: Sequence[str] | str,
        folder: Path | str,
        *,
        clients: Sequence[Stamping] = (),
        on_failure: OnFailure = "stop",
        limits: PhaseLimits | None = None,
        model: nn.Module | None = None,
    ) -> None:
        self.fleet = Fleet(urls, clients, on_failure, limits)
        self._folder = Path(folder)
        self._model = model

    async def publish(self, params: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Return once all further completions come from `params`, under the name `version`.

        Raises PublishError with the servers and phases that failed, ConfigError where the folder
        has that version already.
        """
        # All params are read before anything can fail: sharded ones need every rank to the end.
        tensors = dict(checkpoint_params(params, self._model))
        path = self._folder / f"v{version:06d}"
        with new_folder(path) as unfinished:
            write_tensors(unfinished / "model.safetensors", tensors)

        async def load(replica: Replica) -> None:
            server = replica.server
            await server.call_workers("reload_weights", weights_path=str(path.resolve()))
            # See ludic_vllm.worker. A stock vLLM on a GPU has no such method, and needs none.
            if await _is_on_cpu(server):
                await server.call_workers("ludic_repair_packed")
            await server.post("/update_weight_version", {"new_version": str(version)})
            replica.version = version

        fleet = self.fleet
        async with aclosing(fleet):
            await fleet.connect("/weight_info")
            ready = fleet.in_state("ready")
            await fleet.run("pause", ready, lambda r: r.server.pause(), then="updating")
            try:
                await fleet.run("update", fleet.in_state("updating"), load)
            except BaseException:
                # Failed servers may have a mixture of versions and stay paused.
                updating = fleet.in_state("updating")
                await fleet.attempt("resume", updating, lambda r: r.server.resume())
                raise
            fleet.stamp(version, "updating")
            updating = fleet.in_state("updating")
            await fleet.run("resume", updating, lambda r: r.server.resume(), then="ready")
        for old in sorted(self._folder.glob("v*"))[:-KEPT]:
            shutil.rmtree(old)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which appears at `path`, complete, at the end of the block.

    Raises ConfigError if there is one already: vLLM may keep what it read there before.
    """
    if path.exists():
        raise ConfigError(f"{path} exists already: give each run a folder of its own")
    unfinished = path.with_name(f".{path.name}.incomplete")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    yield unfinished
    unfinished.rename(path)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the tensors as Hugging Face's libraries read them, from any device.

    path: of the safetensors file, which is replaced.
    """
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(on_cpu, path, metadata={"format": "pt"})


async def _is_on_cpu(server: ControlClient) -> bool:
    """True if the vLLM of this server computes on a CPU."""
    config = (await server.get("/server_info?config_format=json"))["vllm_config"]
    return bool(config["device_config"]["device"] == "cpu")
