"""`ludic serve MODEL`: vLLM with the flags that training needs, or Ludic's local engine."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import mkstemp
from typing import Annotated, Any, Literal

import tyro

from ludic_gym.errors import ConfigError
from ludic_gym.harness import HARNESS_FILE, read_harness
from ludic_gym.models import is_hosted
from ludic_gym.web_pages import LOOPBACK
from ludic_train.cluster.roles import exit_code_of_role
from ludic_train.cluster.servers.membership import joined
from ludic_train.cluster.servers.process import (
    POLL_S,
    START_S,
    ServerProcess,
    launched,
    plugin_folder,
)
from ludic_train.cluster.servers.supervisor import supervised_server
from ludic_train.cluster.servers.vllm_command import Installed, ServeOptions, find_vllm
from ludic_train.errors import ServerError
from ludic_train.processes import (
    FAILED,
    STOP_SIGNALS,
    bound_socket,
    free_port,
    printed_progress,
    stop_by_signal,
    url_of,
)
from ludic_train.server_tokens import KEY_VARIABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sessions:
    """Options of the sessions of a server, by which episodes of agent programs are recorded.

    Attributes:
        out: Folder for the rollouts of sessions, one file each. POST /sessions opens one, with the
            server's token, which is printed at the start, or is VLLM_API_KEY.
        deadline: Seconds after which a session ends by itself.
        max_tokens: Longest reply of a request that names no limit; without it, that of a run, or
            1024.
    """

    out: Path | None = None
    deadline: float = 600.0
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        # Seconds of a timer: nan and infinity would end no session.
        if not 0 < self.deadline < math.inf or not (
            self.max_tokens is None or self.max_tokens >= 1
        ):
            raise ConfigError(
                f"deadline={self.deadline:g} must be above 0 and finite, and max_tokens="
                f"{self.max_tokens} at least 1"
            )

    def of_gateway(self, model: str) -> dict[str, Any]:
        """Arguments of a `Gateway`. model: that is served, whose harness may limit replies."""
        is_run = (Path(model) / HARNESS_FILE).is_file()
        reply_tokens = read_harness(model).reply_tokens if is_run else None
        limit = self.max_tokens or reply_tokens or 1024
        return {"deadline_s": self.deadline, "max_tokens": limit, "out": self.out}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Serve a model, with what training needs; or an environment, by its id.

    vLLM is started with log-probs of the distribution that is sampled from, no sampling defaults of
    the model, token ids in and out, and routes for params while it runs. Flags that are not listed
    here go to vLLM as they are. Ctrl-C stops it.

    With --engine local, Ludic's local engine serves the same routes: small models, any machine, no
    vLLM. It also speaks chat completions, responses and Anthropic's messages, and records the
    tokens of the sessions that agent programs open. With --server, the model of running vLLM
    servers is served so.

    For example:
      ludic serve runs/tic-tac-toe --engine local
      ludic serve runs/tic-tac-toe --vllm-python ../vllm/bin/python
      ludic serve Qwen/Qwen3-0.6B --port 8001 --gpu-memory-utilization 0.8
      ludic serve path/to/model --lora 16
      ludic serve runs/mine/published --join runs/mine --host 0.0.0.0 --url http://server-2:8000
      ludic serve ludic-small --engine local --out sessions
      ludic serve openai/gpt-5-mini --port 8100 --out sessions
      ludic serve Qwen/Qwen3-0.6B --server http://localhost:8000 --port 8100 --out sessions
      ludic serve ludic/ToolCalls-v0        (its own options: ludic serve ludic/ToolCalls-v0 --help)

    Attributes:
        model: A run's folder, a folder in Hugging Face format, or a hub id; or, to record agent
            programs of any other model, the address of its server, or openai/NAME.
        engine: vLLM, or Ludic's local engine.
        server: Addresses of running vLLM servers of the model, which sample in place of an engine
            of this process.
        threads: Threads of the local engine on a CPU; without it, torch's default.
        exact: Log-probs of the local engine to the bit as the trainer has them, on one thread.
        prefix_cache_mib: Memory of the local engine for cached prefixes, in MiB; 0 keeps none.
            Without it, an eighth of what is free, and at most 2048.
        vllm_python: The Python that has vLLM; without it, the one that runs this, or that of the
            command `vllm`.
        start_timeout: Seconds until the server must respond.
        join: Folder of a run (`ludic train --engine join`) to sample for, from now until the server
            ends. The trainer pushes its params before actors send requests. All servers of a run
            are started with the same MODEL.
        queue: URL of that run's queue, if it differs from the trainer's.
        url: Address of this server as the trainer and the actors reach it; without it, that of
            --host and --port, as on one machine.
    """

    model: Annotated[str, tyro.conf.Positional]
    engine: Literal["vllm", "local"] = "vllm"
    server: tuple[str, ...] = ()
    threads: int | None = None
    exact: bool = False
    prefix_cache_mib: int | None = None
    vllm_python: str | None = None
    start_timeout: float = START_S
    join: Path | None = None
    queue: str | None = None
    url: str | None = None
    sessions: Annotated[_Sessions, tyro.conf.arg(name="")] = field(default_factory=_Sessions)
    options: Annotated[ServeOptions, tyro.conf.arg(name="")] = field(default_factory=ServeOptions)


# Options of one way to serve, by their names; the others refuse a value other than the default.
_VLLM = {
    "lora", "max_loras", "tensor_parallel_size", "transfer", "sampling_mask", "float32_head",
    "vllm_python", "start_timeout",
}  # fmt: skip
_LOCAL = {"threads", "exact", "prefix_cache_mib"}
_SESSIONS = {"out", "deadline", "max_tokens"}
_ENGINES = {"device", "dtype", "routed_experts", "join", "queue", "url"}
_REFUSED = {
    "vLLM": _LOCAL | _SESSIONS,
    "--engine local": _VLLM,
    "--server": _VLLM | _LOCAL | _ENGINES,
}


def main(argv: list[str]) -> int:
    """Serve until Ctrl-C or SIGTERM; the exit code."""
    args, further = tyro.cli(_Options, args=argv, prog="ludic serve", return_unknown_args=True)
    return exit_code_of_role(lambda: _served(args, further))


def _served(args: _Options, further: list[str]) -> int:
    way = "--engine local" if args.engine == "local" else "vLLM"
    if args.server or is_hosted(args.model):
        way = "--server"
    _check(args, way, [] if way == "vLLM" else further)
    if way != "vLLM":
        return _serve_here(args, is_local=way == "--engine local")
    vllm = find_vllm(args.vllm_python)
    if not vllm.is_tested:
        print(f"note: vLLM {vllm.version} is newer than the tested versions", file=sys.stderr)
    _note_exposure(args.options, "change the model, without a password")
    try:
        return _serve_vllm(args, vllm, further)
    except ServerError as error:
        # Printed here, because the log in it has many lines, and main() prints errors in one.
        print(f"ludic: {error}", file=sys.stderr)
        return FAILED


def _check(args: _Options, way: str, further: list[str]) -> None:
    usual = _Options(model="")
    parts = ((args, usual), (args.options, usual.options), (args.sessions, usual.sessions))
    named = [
        name
        for name in sorted(_REFUSED[way])
        for part, default in parts
        if getattr(part, name, None) != getattr(default, name, None)
    ]
    flags = [f"--{name.replace('_', '-')}" for name in named] + further
    if flags:
        raise ConfigError(f"{' '.join(flags)}: no options of {way}; see `ludic serve --help`")


def _serve_here(args: _Options, *, is_local: bool) -> int:
    """Serve by a gateway of this process: the local engine, or the model of other servers."""
    options, sessions = args.options, args.sessions.of_gateway(args.model)
    if not os.environ.get(KEY_VARIABLE):
        _note_exposure(options, f"sample, without a key (set {KEY_VARIABLE} to demand one)")
    # Bound first, because torch and the model take long to load, and a port in use should be an
    # error at once.
    with stop_by_signal(), bound_socket(options.host, options.port) as bound:
        from ludic_train.agents.serving import serve_local, serve_recorded

        if not is_local:
            serve_recorded(args.model, args.server, bound, host=options.host, **sessions)
            return 0
        with _joined(args, url_of(options.host, bound.getsockname()[1])):
            serve_local(
                args.model,
                bound,
                host=options.host,
                device=options.device,
                dtype=options.dtype,
                threads=args.threads,
                exact=args.exact,
                routed_experts=options.routed_experts,
                prefix_cache_mib=args.prefix_cache_mib,
                **sessions,
            )
    return 0


def _joined(args: _Options, url: str) -> AbstractContextManager[None]:
    """The server in the run that it is to join, if any. Raises ConfigError as `joined`."""
    if args.join is None:
        if args.queue is not None or args.url is not None:
            raise ConfigError(f"queue={args.queue} and url={args.url} are for --join RUN")
        return nullcontext()
    return joined(args.join, args.url or url, args.queue)


def _note_exposure(options: ServeOptions, ability: str) -> None:
    if options.host not in LOOPBACK:
        print(f"note: every client that reaches {options.host} can {ability}", file=sys.stderr)


def _serve_vllm(args: _Options, vllm: Installed, further: list[str]) -> int:
    """Start vLLM, again where it ends by itself or is lost, until a signal; the exit code.

    Raises ServerError as `supervised_server`.
    """
    # One port for all starts: trainers and actors have its address.
    options = replace(args.options, port=free_port(args.options.host, args.options.port))
    # The log stays after the end: a user reads it after a failure.
    descriptor, log = mkstemp(prefix="ludic-serve-", suffix=".log")
    os.close(descriptor)

    async def serve(start: Callable[[], ServerProcess]) -> None:
        loop, serving = asyncio.get_running_loop(), asyncio.current_task()
        assert serving is not None

        def stop() -> None:
            # A second Ctrl-C would interrupt the clean-up and leave processes behind.
            if not serving.cancelling():
                print("stopping", flush=True)
                serving.cancel()

        for signum in STOP_SIGNALS:
            loop.add_signal_handler(signum, stop)
        with suppress(asyncio.CancelledError):
            async with supervised_server(
                start, start_s=args.start_timeout, progress=printed_progress()
            ) as server:
                print(f"ready  {server.url}  ({args.model}; log: {log})", flush=True)
                while server.error is None:
                    await asyncio.sleep(POLL_S)
                raise server.error

    with plugin_folder() as plugin, _joined(args, url_of(options.host, options.port)):
        start = partial(launched, args.model, options, vllm, further, plugin=plugin, log=Path(log))
        asyncio.run(serve(start))
    return 0
