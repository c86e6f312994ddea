"""`ludic train --servers N`: servers on cards of their own, beside the ranks of the trainer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import cache
from typing import Literal

from ludic_gym.concurrency import gather_all
from ludic_gym.errors import ConfigError
from ludic_gym.sampling import leaves_out_tokens
from ludic_train.cluster.layout import Card, Layout, Need, ServerCards, layout
from ludic_train.cluster.loop_thread import LoopThread
from ludic_train.cluster.servers.process import START_S, ServerProcess
from ludic_train.cluster.servers.supervisor import SupervisedServer, supervised_server
from ludic_train.cluster.servers.vllm_command import SERVED_DTYPES, find_vllm, served_model
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
from ludic_train.trainer.config import Load

VISIBLE = "CUDA_VISIBLE_DEVICES"
# How places are named that are processes on a CPU, and no cards.
CPU = "cpu:"
# Tokens whose keys and values a server must be able to hold at least: 16 episodes of 4k.
CACHE_TOKENS = 65_536
# In a process of its own, because asking CUDA for a card's memory takes some of it.
MEMORIES = (
    "import json, torch\n"
    "cards = range(torch.cuda.device_count())\n"
    "print(json.dumps([torch.cuda.get_device_properties(i).total_memory for i in cards]))"
)


def visible_cards(count: int, env: Mapping[str, str]) -> list[Card]:
    """The first `count` cards that torch finds, by the user's CUDA_VISIBLE_DEVICES if it is set.

    env: of this process. Raises ConfigError where there are fewer.
    """
    found = subprocess.run([sys.executable, "-c", MEMORIES], capture_output=True, check=True)
    memories: list[int] = json.loads(found.stdout)
    if not 1 <= count <= len(memories):
        raise ConfigError(
            f"gpus={count}, and torch finds {len(memories)} cards here ({VISIBLE}="
            f"{env.get(VISIBLE)!r}): take as many as there are, or --device cpu"
        )
    given = env.get(VISIBLE)
    names = given.split(",") if given else [str(i) for i in range(len(memories))]
    both = zip(names, memories, strict=False)
    return [Card(name=name.strip(), bytes=size) for name, size in list(both)[:count]]


def layout_of(
    config: RunConfig,
    machine: Machine,
    *,
    gpus: int,
    servers: int,
    engine: Literal["local", "vllm"],
    tensor_parallel: int | None,
) -> Layout:
    """The cards of a run's servers and ranks; on a CPU its processes, which need none.

    gpus: number of cards, or of processes. Raises ConfigError as `layout` does, and for tensor
    parallelism without vLLM.
    """
    if tensor_parallel not in (None, 1) and (engine != VLLM or machine.device == "cpu"):
        raise ConfigError(
            f"tensor_parallel={tensor_parallel} is for --engine vllm on several cards; the engine "
            f"is {engine!r} and the device {machine.device!r}"
        )
    if machine.device == "cpu":
        # Memory of a host is no card's, and is not divided here.
        cards = [Card(name=f"{CPU}{i}", bytes=sys.maxsize) for i in range(gpus)]
        need = Need(rank_bytes=lambda ranks: 0.0, server_bytes=0.0, heads=1)
        found = layout(cards, servers=servers, need=need, tensor_parallel=1)
        return replace(found, servers=tuple(replace(each, share=1.0) for each in found.servers))
    return layout(
        visible_cards(gpus, os.environ),
        servers=servers,
        need=need_of(config, machine),
        tensor_parallel=1 if engine != VLLM else tensor_parallel,
    )


def need_of(config: RunConfig, machine: Machine) -> Need:
    """Memory that a run's ranks and servers need, by the estimate of `ludic train --plan`.

    Raises ModelNotFound for a model without a config.
    """
    if config.model is None:
        # Made from nothing, and smaller than what CUDA itself takes.
        return Need(rank_bytes=lambda ranks: 0.0, server_bytes=0.0, heads=1)
    # torch takes seconds, and `ludic train --help` must not wait for it.
    import torch

    from ludic_train.trainer.memory_estimate import estimate_of, model_from_config, read_config

    name = served_model(config.model)
    settings = read_config(name)
    text, model = settings.get_text_config(), model_from_config(settings, torch.bfloat16)
    params = sum(param.numel() for param in model.parameters())
    is_reference_kept = config.learn.kl > 0 and not (config.tune.lora_rank or machine.offload)

    @cache
    def rank_bytes(ranks: int) -> float:
        estimate = estimate_of(
            name,
            Load(world_size=ranks),
            dtype="float32" if config.tune.dtype == "float32" else "bfloat16",
            lora_rank=config.tune.lora_rank,
            adamw_bits=config.tune.adamw_bits,
            offload=machine.offload,
        )
        # A frozen float32 copy is spread over the ranks too.
        reference = 4 * params / ranks if is_reference_kept else 0
        return estimate.total_bytes + reference

    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    # Keys and values, of 2 bytes each, as the params.
    token_bytes = 2 * 2 * text.num_hidden_layers * kv_heads * head_dim
    return Need(
        rank_bytes=rank_bytes,
        server_bytes=2 * params + CACHE_TOKENS * token_bytes,
        heads=text.num_attention_heads,
    )


def cards_env(cards: Sequence[str]) -> dict[str, str]:
    """The variable by which a process sees these cards alone, and on a CPU none."""
    return {VISIBLE: ",".join(name for name in cards if not name.startswith(CPU))}


def vllm_flags(place: ServerCards) -> list[str]:
    """Flags of a vLLM on these cards; none on a CPU."""
    if place.cards[0].startswith(CPU):
        return []
    return [
        *("--tensor-parallel-size", str(len(place.cards))),
        *("--gpu-memory-utilization", str(place.share)),
    ]


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
    _check_servers(config, machine, servers)
    found = layout_of(
        config,
        machine,
        gpus=gpus,
        servers=servers,
        engine="vllm" if machine.starts_vllm else "local",
        tensor_parallel=tensor_parallel,
    )
    print(found, flush=True)
    try:
        return run_on(found, argv, config, machine)
    except ServerError as error:
        # Printed here, because the log in it has many lines, and main() prints errors in one.
        print(f"ludic: {error}", file=sys.stderr)
        return FAILED


def run_on(found: Layout, argv: Sequence[str], config: RunConfig, machine: Machine) -> int:
    """Start the servers and ranks of a layout; the exit code, once the ranks have ended.

    A server that ends, or no longer responds, is started again; the ranks publish to it again.
    Raises ServerError for a server that ends during its start.
    """
    words = without_options(argv, ("--engine", "--vllm-python"))
    with stop_by_signal(), _started_servers(config, machine, found) as servers:
        urls = [server.url for server in servers]
        print(f"servers      {' '.join(urls)}; logs in {config.out / 'logs'}", flush=True)
        words += ["--engine", *urls]
        code = run_ranks(["train", *words], len(found.ranks), cards_env(found.ranks))
        for error in (server.error for server in servers if code):
            if error is not None:
                print(f"ludic: {error}", file=sys.stderr, flush=True)
        return code


def _check_servers(config: RunConfig, machine: Machine, servers: int) -> None:
    """Raise ConfigError for servers that this command cannot start."""
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


@contextmanager
def _started_servers(
    config: RunConfig, machine: Machine, found: Layout, *, start_s: float = START_S
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
            for number, place in enumerate(found.servers)
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
    return [*words, *vllm_flags(place)]
