"""The commands of a step: printed as a user types them, run, and kept with their output."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ludic_train.cluster.servers.process import last_lines, responds
from ludic_train.cluster.servers.startup import free_port

# The programs that steps start, as arguments of this Python.
PROGRAMS = {"ludic": ("-m", "ludic_gym"), "torchrun": ("-m", "torch.distributed.run"), "python": ()}
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S, STOP_S, POLL_S = 600.0, 60.0, 0.05


class StepFailed(Exception):
    """A step cannot go on; the text says why."""


def python(arguments: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
    """This Python with arguments, as a process."""
    return subprocess.Popen([sys.executable, *arguments], **options)


@dataclass(slots=True, kw_only=True)
class Bench:
    """Settings of all steps, and the commands of the present one.

    folder: of models, runs and logs; commands run in it. device: "cuda" or "cpu". cards: how many
    there are. size: of the random model, a key of `shapes.SHAPES`. engine: "vllm" or "local".
    model: that steps train. is_random: its params are, and replies earn a reward by lot.
    start: starts Python programs.
    """

    folder: Path
    device: str
    cards: int
    size: str
    engine: str
    model: str
    is_random: bool
    vllm_python: str | None = None
    start: Callable[..., Any] = python
    commands: list[str] = field(default_factory=list)
    step: str = ""

    @property
    def on_card(self) -> bool:
        """True if the steps compute on a CUDA card."""
        return self.device == "cuda"

    @property
    def vllm(self) -> list[str]:
        """Options of a command that starts vLLM."""
        return [] if self.vllm_python is None else ["--vllm-python", self.vllm_python]


@contextmanager
def started(
    bench: Bench, words: Sequence[object], env: Mapping[str, str] | None = None
) -> Iterator[tuple[Any, Path]]:
    """A command that runs, and the file of its output; it is stopped at the end of the block.

    words: a key of PROGRAMS and its arguments; a program of Python is named from the repository's
    root. env: variables beside those of this process.
    """
    program, *arguments = map(str, words)
    shown = shlex.join([program, *arguments])
    bench.commands.append(" ".join([*(f"{n}={v}" for n, v in (env or {}).items()), shown]))
    print(f"$ {bench.commands[-1]}", flush=True)
    if program == "python":
        arguments[0] = str(ROOT / arguments[0])
    log = bench.folder / "logs" / f"{bench.step}-{len(bench.commands)}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as output:
        process = bench.start(
            [*PROGRAMS[program], *arguments],
            cwd=bench.folder,
            env={**os.environ, **(env or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process, log
    finally:
        if process.poll() is None:
            # In order, so that servers of the command are stopped too.
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def ran(bench: Bench, *words: object, limit_s: float = LIMIT_S) -> str:
    """Output of a command that ended well. Raises StepFailed for any other end."""
    with started(bench, words) as (process, log):
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise StepFailed(f"{words[0]} {words[1]} did not end within {limit_s:g} s") from None
    if code:
        raise StepFailed(f"{words[0]} {words[1]} ended with code {code}:\n{last_lines(log)}")
    return log.read_text(encoding="utf-8", errors="replace")


def killed(bench: Bench, *words: object, when: Callable[[], bool]) -> None:
    """Send SIGKILL to a command as soon as `when()`; return once all that it started has ended.

    Raises StepFailed if it ends by itself, or a process of it outlives it by STOP_S.
    """
    with started(bench, words) as (process, log):
        until = time.monotonic() + LIMIT_S
        while not when():
            if process.poll() is not None:
                raise StepFailed(f"it ended before it could be killed:\n{last_lines(log)}")
            if time.monotonic() > until:
                raise StepFailed(f"after {LIMIT_S:g} s there was nothing to be resumed")
            time.sleep(POLL_S)
        process.kill()
        process.wait()
    until = time.monotonic() + STOP_S
    while left := processes_in(bench.folder):
        if time.monotonic() > until:
            raise StepFailed(f"{STOP_S:g} s after SIGKILL there are still: {'; '.join(left)}")
        time.sleep(POLL_S)


def processes_in(folder: Path) -> list[str]:
    """Command lines of the processes whose current folder is this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        # Processes end meanwhile, and those of other users are not to be read.
        with suppress(OSError):
            if (process / "cwd").readlink() == folder:
                found.append((process / "cmdline").read_text().replace("\0", " ").strip())
    return found


@contextmanager
def served(bench: Bench, *words: object, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Address of a server that responds; stopped at the end of the block.

    words: of `ludic serve`, without the port. Raises StepFailed where it ends, or is silent.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with started(bench, ["ludic", "serve", *words, "--port", port], env) as (process, log):
        until = time.monotonic() + LIMIT_S
        while not responds(url):
            if process.poll() is not None or time.monotonic() > until:
                raise StepFailed(f"the server does not respond:\n{last_lines(log)}")
            time.sleep(POLL_S)
        yield url
