"""`ludic gateway`: a model behind the APIs of agent programs, and the tokens of their sessions."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ludic_gym.commands.arguments import check_port, option, parse
from ludic_gym.commands.main import importing
from ludic_gym.errors import ConfigError
from ludic_train.server_tokens import KEY_VARIABLE

EXAMPLES = """\
ludic gateway ludic-small --out traces
ludic gateway runs/mine --port 8100
ludic gateway Qwen/Qwen3-0.6B --server http://localhost:8000 --out traces"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """Serve a model to agent programs by the APIs of OpenAI and Anthropic, and keep every token.

    POST /sessions opens a session, an episode of one agent, and returns its addresses and its key;
    POST /sessions/KEY/close ends it, and writes its calls as a TrainingTrace. Both need the
    gateway's token, which is printed at the start, or is VLLM_API_KEY.
    """

    model: Annotated[tyro.conf.Positional[str], option("MODEL")]
    """A run folder, a model's folder or a hub id; its chat template makes the prompts."""
    server: tuple[str, ...] = ()
    """Addresses of vLLM servers of this model, which sample in place of this process."""
    out: Path | None = None
    """Folder for the trace of each session."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8100
    """Port; 0 takes a free one."""
    deadline: float = 600.0
    """Seconds after which a session ends by itself."""
    max_tokens: int = 1024
    """Longest reply of a request that names no limit."""


def main(argv: list[str]) -> int:
    """Serve until Ctrl-C or SIGTERM; the exit code."""
    options = parse(GatewayOptions, argv, command="gateway", examples=EXAMPLES)
    check_port(options.port)
    # Seconds of a timer: nan and infinity would end no session.
    if not 0 < options.deadline < math.inf or options.max_tokens < 1:
        raise ConfigError(
            f"deadline={options.deadline:g} must be above 0, and max_tokens={options.max_tokens} "
            "at least 1"
        )
    # torch and transformers take seconds, and --help must not wait for them.
    with importing():
        from ludic_train.agents.standing import serve

    stop = asyncio.Event()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, stop.set)
        await serve(options, os.environ.get(KEY_VARIABLE), stop)

    asyncio.run(run())
    return 0
