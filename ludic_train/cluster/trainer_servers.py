"""`ludic train --servers N`: servers on cards of their own, beside the ranks of the trainer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager

from ludic_gym.concurrency import gather_all
from ludic_gym.errors import ConfigError
from ludic_gym.sampling import leaves_out_tokens
from ludic_train.cluster.layout import Layout, ServerCards, cards_env, layout_of
from ludic_train.cluster.loop_thread import LoopThread
from ludic_train.cluster.servers.process import START_S, ServerProcess
from ludic_train.cluster.servers.supervisor import SupervisedServer, supervised_server
from ludic_train.cluster.servers.vllm_command import SERVED_DTYPES, find_vllm
from ludic_train.distributed.local_ranks import LUDIC, run_ranks, started_by_other
from ludic_train.errors import ServerError
from ludic_train.processes import (
    FAILED,
    free_port,
    spawn,
    stop_by_signal,
    tied_to_parent,
    without_options,
)
from ludic_train.runs.config import RunConfig
from ludic_train.runs.machine import VLLM, Machine


def run_with_servers(
    argv: Sequence[str],
    config: RunConfig,
    machine: Machine,
    *,
    gpus: int,
    servers: int,
    tensor_parallel: int | None,
) -> int:
    """Start servers and ranks on cards of their own; the exit code.

    argv: of `ludic train`, for the ranks.
    Raises ConfigError for servers that cannot be started, or that find no room on the cards.
    """
    if started_by_other():
        raise ConfigError(
            f"servers={servers} under torchrun: start them with `ludic serve`, and name their "
            "addresses with --engine"
        )
    if config.model is None:
        raise ConfigError(f"servers={servers} serve a model that exists: name one with --model")
    if machine.servers:
        raise ConfigError(
            f"servers={servers} would be started beside --engine {' '.join(machine.engine)}: "
            "leave out one of the two"
        )
    if machine.queue is not None:
        raise ConfigError(f"servers={servers} with a queue: take `ludic launch --servers`")
    if machine.starts_vllm:
        # Its errors should come before anything is started.
        find_vllm(machine.vllm_python)
    cards = layout_of(
        os.environ,
        device=machine.device,
        gpus=gpus,
        servers=servers,
        engine="vllm" if machine.starts_vllm else "local",
        tensor_parallel=tensor_parallel,
    )
    print(cards, flush=True)
    try:
        return run_on(cards, argv, config, machine)
    except ServerError as error:
        # Printed here, because the log in it has many lines, and main() prints errors in one.
        print(f"ludic: {error}", file=sys.stderr)
        return FAILED


def run_on(cards: Layout, argv: Sequence[str], config: RunConfig, machine: Machine) -> int:
    """Start the servers and ranks of a layout; the exit code, once the ranks have ended.

    A server that ends, or no longer responds, is started again; the ranks publish to it again.
    Raises ServerError for a server that ends during its start.
    """
    words = without_options(argv, ("--engine", "--vllm-python"))
    with stop_by_signal(), _started_servers(config, machine, cards) as servers:
        urls = [server.url for server in servers]
        print(f"servers      {' '.join(urls)}; logs in {config.out / 'logs'}", flush=True)
        words += ["--engine", *urls]
        code = run_ranks(["train", *words], len(cards.ranks), cards_env(cards.ranks))
        for error in (server.error for server in servers if code):
            if error is not None:
                print(f"ludic: {error}", file=sys.stderr, flush=True)
        return code


@contextmanager
def _started_servers(
    config: RunConfig, machine: Machine, cards: Layout, *, start_s: float = START_S
) -> Iterator[Sequence[SupervisedServer]]:
    """Servers on their cards that respond; stopped at the end of the block.

    Logs are OUT/logs/server-N.log.
    Raises ServerError for one that ends or does not respond within `start_s`.
    """
    (config.out / "logs").mkdir(parents=True, exist_ok=True)
    # `ludic serve` looks after its vLLM by itself, which takes as long as a start.
    lost_s = max(start_s, machine.lost_after) if machine.starts_vllm else machine.lost_after
    stack = AsyncExitStack()

    async def started() -> list[SupervisedServer]:
        return await gather_all(
            stack.enter_async_context(
                supervised_server(
                    _starter(config, machine, place, number),
                    name=f"server-{number}",
                    start_s=start_s,
                    lost_s=lost_s,
                )
            )
            for number, place in enumerate(cards.servers)
        )

    # A thread of their own: this one waits for the ranks, and takes signals. Servers end with the
    # thread that has started them.
    thread = LoopThread("servers")
    starting = thread.start(started())
    try:
        yield starting.result()
    finally:
        starting.cancel()
        thread.start(stack.aclose()).result()
        thread.close()


def _starter(
    config: RunConfig, machine: Machine, place: ServerCards, number: int
) -> Callable[[], ServerProcess]:
    """A function that starts a server on its cards, each time at the same port."""
    port, log = free_port(), config.out / "logs" / f"server-{number}.log"
    command = [*LUDIC, *_serve(config, machine, place), "--port", str(port)]
    env = {**os.environ, **cards_env(place.cards)}
    return lambda: ServerProcess(
        f"http://127.0.0.1:{port}", log, spawn(tied_to_parent(command), log, env)
    )


def _serve(config: RunConfig, machine: Machine, place: ServerCards) -> list[str]:
    """The command line of a server of the run's model."""
    words = ["serve", str(config.model), "--engine", VLLM if machine.starts_vllm else "local"]
    # As the trainer: what rounds to nothing in one of them must not count in the other.
    words += [] if config.tune.dtype == "auto" else ["--dtype", SERVED_DTYPES[config.tune.dtype]]
    if not machine.starts_vllm:
        # The local engine takes a card where it finds one, which a run on CPUs would not expect.
        return [*words, *(["--device", "cpu"] if machine.device == "cpu" else [])]
    words += ["--vllm-python", machine.vllm_python] if machine.vllm_python else []
    # Samples of truncated distributions can be trained on only with the set that was kept.
    words += ["--sampling-mask"] if leaves_out_tokens(config.sample.sampling) else []
    words += ["--routed-experts"] if config.tune.router_replay else []
    return [*words, *place.vllm_flags]
