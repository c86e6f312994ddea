"""The ranks of one machine: `ludic train --gpus N` starts itself N times, as torchrun would.

Unlike torchrun it waits for as long as a stopped run needs to save, and ends with the exit code of
rank 0.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from ludic_gym.errors import ConfigError
from ludic_train.processes import free_port, stop_handler, tied_to_parent

# In seconds. After one rank failed, the others get some time to say why before they are ended.
POLL_S, LAST_WORDS_S, STOP_S = 0.1, 10.0, 10.0
LUDIC = (sys.executable, "-m", "ludic_gym")


def started_by_other() -> bool:
    """True in a rank, whatever program started it."""
    return "WORLD_SIZE" in os.environ


def own_rank() -> int:
    """Number of this process among the ranks, before and after there is a process group."""
    return int(os.environ.get("RANK", "0"))


def check_gpus(gpus: int, servers: int = 0) -> None:
    """Raise ConfigError for fewer than one rank, and for others than torchrun has started.

    servers: of the run, which have some of the cards.
    """
    if gpus < 1 or servers < 0:
        raise ConfigError(
            f"gpus={gpus}, servers={servers}; at least one rank must train, and servers are 0 or "
            "more"
        )
    if servers:
        return
    here = int(os.environ.get("LOCAL_WORLD_SIZE", gpus))
    if gpus > 1 and gpus != here:
        raise ConfigError(
            f"gpus={gpus}, but {here} ranks were started here already: leave out --gpus under "
            "torchrun"
        )


def run_ranks(arguments: Sequence[str], count: int, env: Mapping[str, str] | None = None) -> int:
    """Run `ludic` with these arguments as so many ranks; the exit code of the first that failed.

    env: variables that they get beside those of this process.
    Ctrl-C and SIGTERM are passed on to each rank once per signal.
    """
    address = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
    }
    # As many threads as there are cores, in each of several processes, would slow all of them down.
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // count))}
    ranks: list[subprocess.Popen[bytes]] = []

    def pass_on(signum: int, frame: object) -> None:
        for process in ranks:
            if process.poll() is None:
                process.send_signal(signum)

    with stop_handler(pass_on):
        try:
            for number in range(count):
                rank_env = {"RANK": str(number), "LOCAL_RANK": str(number)}
                # In sessions of their own: Ctrl-C would reach them twice, which ends a run at once.
                ranks.append(
                    subprocess.Popen(
                        # Ranks of a launcher that was killed would train on, unseen, on its cards.
                        tied_to_parent([*LUDIC, *arguments]),
                        env={**threads, **os.environ, **(env or {}), **address, **rank_env},
                        start_new_session=True,
                    )
                )
            return _first_failure(ranks)
        finally:
            # End the ranks that still run.
            for stop in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
                pass_on(stop, None)
                _wait(ranks, STOP_S)


def _first_failure(ranks: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait until all have ended, or one has failed; the exit code, that of rank 0 if it failed."""
    while any(process.poll() is None for process in ranks):
        if any(process.poll() for process in ranks):
            _wait(ranks, LAST_WORDS_S)
            break
        time.sleep(POLL_S)
    failed = [process.returncode for process in ranks if process.poll()]
    # As shells report a process that a signal ended.
    return next((code if code > 0 else 128 - code for code in failed), 0)


def _wait(ranks: Sequence[subprocess.Popen[bytes]], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while any(process.poll() is None for process in ranks) and time.monotonic() < deadline:
        time.sleep(POLL_S)
