"""`ludic serve`: vLLM with the flags that training needs, or Ludic's local engine in its place."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

from ludic_gym.errors import ConfigError
from ludic_train.errors import ServerError
from ludic_train.serving.flags import ServeOptions
from ludic_train.serving.installed import Installed, find_vllm
from ludic_train.serving.process import Progress, ServerProcess, started_server
from ludic_train.serving.startup import Stopped, stop_by_signal

FAILED = 1
START_S = 600.0
VLLM_ONLY = ("lora", "max_loras", "tensor_parallel_size", "transfer", "float32_head")
ABOUT = """Start vLLM with what training needs: log-probs of what was sampled, the model's own
sampling defaults ignored, token ids in and out, and routes that take params while it runs. Flags
that are not listed here go to vLLM as they are. Ctrl-C stops it.

With --engine local, Ludic's local engine answers on the same routes: small models, any machine,
no vLLM. Of the options it knows --host, --port, --device and --threads.

examples:
  ludic serve runs/tic-tac-toe --engine local
  ludic serve runs/tic-tac-toe --python ../vllm/bin/python
  ludic serve Qwen/Qwen3-0.6B --port 8001 --gpu-memory-utilization 0.8
  ludic serve path/to/model --lora 16"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Words of the command line.

    Attributes:
        model: A run's folder, a folder in Hugging Face format, or a hub id.
        engine: vLLM, or Ludic's local engine.
        threads: Of the local engine, to compute with on a CPU; without it, torch's own choice.
        python: The Python that has vLLM; without it, the one that runs this.
        start_timeout: Seconds until the server has to answer.
    """

    model: Annotated[str, tyro.conf.Positional]
    engine: Literal["vllm", "local"] = "vllm"
    threads: int | None = None
    python: str | None = None
    start_timeout: float = START_S
    options: Annotated[ServeOptions, tyro.conf.arg(name="")] = field(default_factory=ServeOptions)


def main(argv: list[str]) -> int:
    """Serve until Ctrl-C or SIGTERM; the exit code."""
    words, further = tyro.cli(
        _Options, args=argv, prog="ludic serve", description=ABOUT, return_unknown_args=True
    )
    options: ServeOptions = words.options
    try:
        if words.engine == "local":
            _check_local(words, further)
            _note_exposure(options)
            # Imported here: torch takes seconds, and vLLM needs none of ours.
            from ludic_train.serving.local.process import serve_local

            return serve_local(words.model, options, words.threads)
        if words.threads is not None:
            raise ConfigError(
                f"--threads {words.threads} is for --engine local; for vLLM set OMP_NUM_THREADS"
            )
        return _serve_vllm(words, further)
    except ServerError as error:
        # Whole lines: the log's end is in it.
        print(f"ludic: {error}", file=sys.stderr)
        return FAILED


def _check_local(words: _Options, further: list[str]) -> None:
    """Raises ConfigError for options that mean something to vLLM alone."""
    usual, usual_words = ServeOptions(), {"python": None, "start_timeout": START_S}
    given = [name for name in VLLM_ONLY if getattr(words.options, name) != getattr(usual, name)]
    given += [name for name, value in usual_words.items() if getattr(words, name) != value]
    flags = [f"--{name.replace('_', '-')}" for name in given] + further
    if flags:
        raise ConfigError(f"{' '.join(flags)}: options of vLLM, which --engine local has not")


def _note_exposure(options: ServeOptions) -> None:
    if options.is_exposed:
        print(
            f"note: whoever reaches {options.host} can change the model: no password is asked",
            file=sys.stderr,
        )


def _serve_vllm(words: _Options, further: list[str]) -> int:
    vllm = find_vllm(words.python)
    if not vllm.is_tested:
        print(f"note: vLLM {vllm.version} is newer than what Ludic was tried with", file=sys.stderr)
    _note_exposure(words.options)
    return _serve(words, vllm, further)


def _serve(words: _Options, vllm: Installed, further: list[str]) -> int:
    start_s, progress = words.start_timeout, _progress()
    with (
        stop_by_signal(),
        started_server(
            words.model, words.options, vllm, further, start_s=start_s, progress=progress
        ) as server,
    ):
        return _served(server, words.model)


def _served(server: ServerProcess, model: str) -> int:
    try:
        # Whoever reads this line may ask to stop at once.
        print(f"ready  {server.url}  ({model}; log: {server.log})", flush=True)
        code = server.process.wait()
    except Stopped:
        print("stopping", flush=True)
        return 0
    raise ServerError(
        f"vLLM ended with code {code}. The end of its log, {server.log}:\n{server.last_lines()}"
    )


def _progress() -> Progress:
    """A line that is written over, on a terminal; elsewhere, one line every ten seconds."""
    last = [0.0]

    def show(waited_s: float) -> None:
        if sys.stderr.isatty():
            print(f"\rvLLM is starting: {waited_s:4.0f} s", end="", file=sys.stderr, flush=True)
        elif waited_s - last[0] >= 10:
            last[0] = waited_s
            print(f"vLLM is starting: {waited_s:.0f} s", file=sys.stderr, flush=True)

    return show
