"""Runner of a whole program, once per case, in a new process each: stdin in, stdout out.

The program is compiled once and run in forks, because a start of Python takes longer than most
cases. A fork's stdin and stdout are files, so that it never waits for this process.
"""

import contextlib
import os
import signal
import sys
import traceback
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any, NoReturn

from ludic_gym.graders.programs.inside.channel import Channel, text_of

# Output of a case; more than this is not read, since it cannot be right.
MOST_BYTES = 2**22


class TooLong(Exception):
    """A case has used up its time."""


def main() -> None:
    """Compile the program of the first request, then run one case per further request."""
    channel = Channel()
    request = channel.receive()
    try:
        code = compile(request["code"], "solution.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
        channel.send(["syntax", text_of(error)])
        return
    channel.send(["ready", ""])
    signal.signal(signal.SIGALRM, too_long)
    while True:
        channel.send(outcome(code, channel.receive(), request["case_s"]))


def outcome(code: CodeType, stdin: str, case_s: float) -> list[Any]:
    """["exited", stdout, exit code, 128 + n where signal n ended it], or ["timeout", stdout].

    code: the compiled program. stdin: its input; surrogate escapes stand for bytes that are not
    UTF-8. case_s: seconds until the program and its children are killed.
    """
    with open("stdin", "wb") as file:
        file.write(stdin.encode("utf-8", "surrogateescape"))
    child = os.fork()
    if not child:
        become(code)
    status = waited(child, case_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    try:
        with open("stdout", "rb") as file:
            stdout = file.read(MOST_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        stdout = ""
    if status is None:
        return ["timeout", stdout]
    # Shells and the sandbox count the same way: 128 + n for signal n.
    code_ = os.waitstatus_to_exitcode(status)
    return ["exited", stdout, code_ if code_ >= 0 else 128 - code_]


def waited(child: int, case_s: float) -> int | None:
    """The status that the child ended with; None if it took too long and was killed."""
    try:
        signal.setitimer(signal.ITIMER_REAL, case_s)
        status = os.waitpid(child, 0)[1]
        signal.setitimer(signal.ITIMER_REAL, 0)
        return status
    except TooLong:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None


def too_long(number: int, frame: FrameType | None) -> NoReturn:
    """Handle the alarm."""
    raise TooLong


def become(code: CodeType) -> NoReturn:
    """Run the program as Python would run it from a file, and end like it.

    Called in a fork, whose process group is its own, so that its children can be killed with it.
    """
    os.setpgid(0, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.dup2(os.open("stdin", os.O_RDONLY), 0)
    os.dup2(os.open("stdout", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
    # The program must not reach the runner's pipes.
    os.closerange(3, 256)
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["solution.py"]

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        while trace and trace.tb_frame.f_code is not code:
            trace = trace.tb_next
        traceback.print_exception(kind, error, trace)

    # Without the runner's frames. All else is left to the interpreter: it ends with the program's
    # exit code, after its other threads and with its buffers written.
    sys.excepthook = show
    exec(code, vars(module))
    sys.exit()


if __name__ == "__main__":
    main()
