"""What runs inside a sandbox until the program does. Only its text goes there, to `python -c`.

It says "ready", takes one job from stdin, says "start", and becomes the program: same process,
nothing of this left but the frames below it. Imports are few, because they are paid per program.
"""

from __future__ import annotations

import marshal
import os
import resource
import sys

SOURCE_NAME = "main.py"
OPEN_FILES = 256


def main(uid: int) -> None:
    """Wait for the job and do it, as that user unless `uid` is 0."""
    if uid:
        become(uid)
    os.write(1, b"ready\n")
    source, arguments, interpreter, files, limits = marshal.loads(read(int(read(12))))
    for name, content in {**files, SOURCE_NAME: source}.items():
        lay(name, content)
    restrict(*limits)
    os.write(1, b"start\n")
    if interpreter:
        replace([*interpreter, SOURCE_NAME, *arguments])
    become_program(source, arguments)


def become(uid: int) -> None:
    """Give up root for a user that owns nothing."""
    for descriptor in (0, 1, 2):
        # /dev/stdin is opened anew, as that user.
        os.fchmod(descriptor, 0o666)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def read(size: int) -> bytes:
    """That many bytes of stdin and not one more: the rest is the program's."""
    parts: list[bytes] = []
    while size:
        part = os.read(0, min(size, 2**20))
        if not part:
            # Nobody wants this sandbox any more.
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def lay(name: str, content: bytes) -> None:
    """Write a file below the working directory."""
    folder = os.path.dirname(name)
    if folder:
        os.makedirs(folder, exist_ok=True)
    with open(name, "wb") as file:
        file.write(content)


def restrict(cpu_s: int, memory: int, processes: int, disk: int) -> None:
    """Set limits that nothing inside can raise again."""
    # At the soft limit comes a signal that says what happened; one that is ignored is followed
    # by one that cannot be.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (disk, disk))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def replace(command: list[str]) -> None:
    """Let another interpreter take this process."""
    try:
        os.execvp(command[0], command)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{command[0]}: {error}\n")
        sys.stderr.flush()
        os._exit(127)


def become_program(source: bytes, arguments: list[str]) -> None:
    """Run the source as Python would run it from a file."""
    module = type(sys)("__main__")
    path = os.path.abspath(SOURCE_NAME)
    module.__dict__["__file__"] = path
    sys.modules["__main__"] = module
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.getcwd())
    try:
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        # Without the frame below the program's.
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
