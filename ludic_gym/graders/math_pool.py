"""Processes that compare pairs of expressions by math-verify.

sympy has no limit of time or memory that holds for every expression, and a thread cannot be
killed. The processes serve all graders of this one; each starts when it is needed.
"""

import atexit
import importlib.util
import json
import os
import select
import subprocess
import sys
import threading
from contextlib import suppress

from ludic_gym.errors import ConfigError, GraderError

CPU_S = 5.0
# Much longer than the CPU time: a process on a busy machine is slow, not stuck.
DEADLINE_S = 120.0
VERDICTS = ("equal", "different", "refused")
# Other systems have no select for pipes, and no memory limits.
IS_POSIX = os.name == "posix"


class Pool:
    """Processes that compare pairs, one pair at a time each; a dead one is replaced.

    size: maximum number of processes. Safe in threads, which wait for a free process.
    cpu_s: CPU time for a comparison, in seconds. deadline_s: wall-clock time for it, and for the
        start of a process.
    """

    def __init__(
        self, size: int = 4, *, cpu_s: float = CPU_S, deadline_s: float = DEADLINE_S
    ) -> None:
        self._size, self._cpu_s, self._deadline_s = size, cpu_s, deadline_s
        self.forget()

    def forget(self) -> None:
        """Drop the processes in a fork: they belong to the parent."""
        self._places = threading.BoundedSemaphore(self._size)
        self._idle: list[subprocess.Popen[str]] = []

    def ask(self, answer: str, truth: str) -> str:
        """The verdict of `math_server.verdict_on`.

        answer, truth: LaTeX or plain text, without a box.
        Raises ConfigError if math-verify is not installed, GraderError if a process and then a
        fresh one have died or taken too long.
        """
        line, verdict = json.dumps([answer, truth]), ""
        with self._places:
            # Twice, because a killed or stopped process says nothing about the pair.
            for attempt in range(2):
                # A pop is safe in threads, a look at the length before it is not.
                process = None
                with suppress(IndexError):
                    process = self._idle.pop() if attempt == 0 else None
                process = process or self._started()
                verdict = self._verdict(process, line)
                if verdict in VERDICTS:
                    self._idle.append(process)
                    return verdict
        raise GraderError(
            f"math-verify reached no verdict on {answer!r} for {truth!r}, twice: {verdict} "
            f"(limits: {self._cpu_s} s of CPU time, {self._deadline_s} s)"
        )

    def _verdict(self, process: subprocess.Popen[str], line: str) -> str:
        """The reply of the process, or "timeout" or "crash"; it is killed unless it replies."""
        assert process.stdin, "it is a pipe"
        assert process.stdout, "it is a pipe"
        reply = ""
        try:
            process.stdin.write(f"{line}\n")
            # A blocked `readline` cannot be interrupted from this thread; a wait for the pipe has a
            # deadline.
            if select.select([process.stdout], [], [], self._deadline_s)[0]:
                reply = process.stdout.readline().strip() or "crash"
            else:
                reply = "timeout"
        except OSError:
            reply = "crash"
        finally:
            # Also if the wait is interrupted.
            if reply not in VERDICTS:
                _end(process)
        return reply

    def _started(self) -> subprocess.Popen[str]:
        """A new process, which has compared a first pair. Raises ConfigError if it cannot."""
        require_math_verify()
        # Not by multiprocessing, whose daemonic workers (vector environments) may have no children.
        process = subprocess.Popen(
            [sys.executable, "-m", "ludic_gym.graders.math_server", str(self._cpu_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        if self._verdict(process, '["1", "1"]') != "equal":
            raise ConfigError("math-verify does not start; try: python -c 'import math_verify'")
        return process

    def close(self) -> None:
        """End the idle processes; the next comparison starts another."""
        with suppress(IndexError):
            while True:
                _end(self._idle.pop())


def require_math_verify() -> None:
    """Raise ConfigError if math-verify is not installed, or cannot be used here."""
    if not IS_POSIX:
        raise ConfigError(
            f"math-verify is run in a process that needs Linux or macOS, this is {os.name!r}: "
            "use WSL, or grade_number where each truth is a number"
        )
    if importlib.util.find_spec("math_verify") is None:
        raise ConfigError("grade_maths needs math-verify: pip install 'ludic-gym[math]'")


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    # Wait for the end and close the pipes.
    process.communicate()


# Shared by all graders.
POOL = Pool(min(4, os.cpu_count() or 1))
atexit.register(POOL.close)
if IS_POSIX:
    os.register_at_fork(after_in_child=POOL.forget)
