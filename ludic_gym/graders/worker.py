"""math-verify in a process that can be killed: a deadline, no exception and no hang.

sympy has no limit of time or memory that holds for every expression, and a thread cannot be
killed. One process serves all graders of this process; it starts at the first comparison.
"""

import atexit
import importlib.util
import json
import os
import select
import subprocess
import sys
import threading

from ludic_gym.errors import ConfigError

DEADLINE_S = 5.0
# Loading sympy takes seconds on a busy machine.
START_DEADLINE_S = 120.0
# Other systems have no select for pipes, and no memory limits.
IS_POSIX = os.name == "posix"


class Worker:
    """One process that compares pairs one after another, restarted after it had to be killed.

    deadline_s: for each comparison, in seconds. The start has a longer one.
    """

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self.forget()

    def forget(self) -> None:
        """Drop the process in a fork: it belongs to the parent."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, answer: str, truth: str) -> tuple[bool, str]:
        """The verdict and "math-verify"; False and "timeout" or "crash" where there is none.

        answer, truth: LaTeX or plain text, without a box. Safe in threads, which take turns.
        Raises ConfigError if math-verify is not installed.
        """
        with self._lock:
            process = self._process or self._started()
            reply = _reply(process, json.dumps([answer, truth]), self._deadline_s)
            if reply in ("timeout", "crash"):
                self._kill()
                return False, reply
            return reply == "true", "math-verify"

    def _started(self) -> subprocess.Popen[str]:
        """A new process, which has compared a first pair. Raises ConfigError if it cannot."""
        require_math_verify()
        # Not by multiprocessing, whose daemonic workers (vector environments) may have no children.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ludic_gym.graders.math_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        if _reply(self._process, '["1", "1"]', START_DEADLINE_S) != "true":
            self._kill()
            raise ConfigError("math-verify does not start; try: python -c 'import math_verify'")
        return self._process

    def _kill(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            # Wait for the end and close the pipes.
            self._process.communicate()
        self._process = None

    def close(self) -> None:
        """End the process; the next comparison starts another."""
        with self._lock:
            self._kill()


def require_math_verify() -> None:
    """Raise ConfigError if math-verify is not installed, or cannot be used here."""
    if not IS_POSIX:
        raise ConfigError(
            f"math-verify is run in a process that needs Linux or macOS, this is {os.name!r}: "
            "use WSL, or grade_number where each truth is a number"
        )
    if importlib.util.find_spec("math_verify") is None:
        raise ConfigError("grade_maths needs math-verify: pip install 'ludic-gym[math]'")


def _reply(process: subprocess.Popen[str], line: str, deadline_s: float) -> str:
    """Send a line; the line of the reply, or "timeout" or "crash"."""
    assert process.stdin, "it is a pipe"
    assert process.stdout, "it is a pipe"
    try:
        process.stdin.write(f"{line}\n")
        # A blocked `readline` cannot be interrupted from this thread; a wait for the pipe has a
        # deadline.
        if not select.select([process.stdout], [], [], deadline_s)[0]:
            return "timeout"
        return process.stdout.readline().strip() or "crash"
    except OSError:
        return "crash"


_WORKER = Worker()
atexit.register(_WORKER.close)
if IS_POSIX:
    os.register_at_fork(after_in_child=_WORKER.forget)


def verdict(answer: str, truth: str) -> tuple[bool, str]:
    """Compare an answer with the truth in the process that all graders share; see `Worker.ask`."""
    return _WORKER.ask(answer, truth)
