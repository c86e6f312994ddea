"""`ludic serve`: vLLM with the flags that training needs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

import tyro

from ludic_train.errors import ServerError
from ludic_train.serving.flags import ServeOptions
from ludic_train.serving.installed import Installed, find_vllm
from ludic_train.serving.process import Progress, ServerProcess, started_server

FAILED = 1
ABOUT = """Start vLLM with what training needs: log-probs of what was sampled, the model's own
sampling defaults ignored, token ids in and out, and routes that take params while it runs. Flags
that are not listed here go to vLLM as they are. Ctrl-C stops it.

examples:
  ludic serve runs/tic-tac-toe --python ../vllm/bin/python
  ludic serve Qwen/Qwen3-0.6B --port 8001 --gpu-memory-utilization 0.8
  ludic serve path/to/model --lora 16"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Words of the command line.

    Attributes:
        model: A run's folder, a folder in Hugging Face format, or a hub id.
        python: The Python that has vLLM; without it, the one that runs this.
        start_timeout: Seconds until the server has to answer.
    """

    model: Annotated[str, tyro.conf.Positional]
    python: str | None = None
    start_timeout: float = 600.0
    options: Annotated[ServeOptions, tyro.conf.arg(name="")] = field(default_factory=ServeOptions)


def serve(argv: list[str]) -> int:
    """Serve until Ctrl-C or SIGTERM; the exit code."""
    words, further = tyro.cli(
        _Options, args=argv, prog="ludic serve", description=ABOUT, return_unknown_args=True
    )
    vllm = find_vllm(words.python)
    options: ServeOptions = words.options
    if not vllm.is_tested:
        print(f"note: vLLM {vllm.version} is newer than what Ludic was tried with", file=sys.stderr)
    if options.is_exposed:
        print(
            f"note: whoever reaches {options.host} can change the model: no password is asked",
            file=sys.stderr,
        )
    try:
        return _serve(words, vllm, further)
    except ServerError as error:
        # Whole lines: the log's end is in it.
        print(f"ludic: {error}", file=sys.stderr)
        return FAILED


def _serve(words: _Options, vllm: Installed, further: list[str]) -> int:
    start_s, progress = words.start_timeout, _progress()
    with (
        _stop_by_signal(),
        started_server(
            words.model, words.options, vllm, further, start_s=start_s, progress=progress
        ) as server,
    ):
        return _served(server, words.model)


def _served(server: ServerProcess, model: str) -> int:
    print(f"ready  {server.url}  ({model}; log: {server.log})", flush=True)
    try:
        code = server.process.wait()
    except _Stopped:
        print("stopping", flush=True)
        return 0
    raise ServerError(
        f"vLLM ended with code {code}. The end of its log, {server.log}:\n{server.last_lines()}"
    )


class _Stopped(BaseException):
    """SIGINT or SIGTERM came."""


@contextmanager
def _stop_by_signal() -> Iterator[None]:
    """Both signals raise _Stopped, once: while the server is being stopped, they wait."""

    def stop(signum: int, frame: object) -> None:
        for each in usual:
            signal.signal(each, signal.SIG_IGN)
        raise _Stopped

    usual = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for each in usual:
        signal.signal(each, stop)
    try:
        yield
    except _Stopped:
        print("stopped before it was ready", file=sys.stderr)
        raise KeyboardInterrupt from None
    finally:
        for each, handler in usual.items():
            signal.signal(each, handler)


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
