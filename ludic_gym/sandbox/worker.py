"""The worker inside a sandbox, until the program runs. Only its text goes there, to `python -c`.

It prints "ready", reads one job from stdin, prints "start", and becomes the program in the same
process. Nothing of the worker is left then, except for the frames below the program's. Imports are
few, because every program pays for them.
"""

import marshal
import os
import resource
import sys

SOURCE_NAME = "main.py"
# Each may be a socket, whose buffer the kernel holds.
OPEN_FILES = 64


def main(uid: int) -> None:
    """Wait for the job and run it, as user `uid` unless that is 0."""
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
    """Change from root to a user that owns no files.

    Real, effective and saved ids all change, so that the program cannot change back.
    """
    for descriptor in (0, 1, 2):
        # A program that opens /dev/stdin opens the pipe again, which belongs to root.
        os.fchmod(descriptor, 0o666)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def read(size: int) -> bytes:
    """Exactly that many bytes of stdin: the rest is the program's input."""
    parts: list[bytes] = []
    while size:
        part = os.read(0, min(size, 2**20))
        if not part:
            # The parent has closed the pipe: the sandbox is no longer needed.
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
    """Set limits that the program cannot raise.

    cpu_s: whole seconds. memory: bytes of address space. disk: bytes of each file; all of them
    together are bounded by the size of the file system.
    """
    # The soft limit sends SIGXCPU, which the parent recognizes. A program that ignores it gets
    # SIGKILL a second later, at the hard limit.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (disk, disk))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def replace(command: list[str]) -> None:
    """Replace this process by another interpreter; exit code 127 without it, as in a shell."""
    try:
        os.execvp(command[0], command)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{command[0]}: {error}\n")
        sys.stderr.flush()
        os._exit(127)


def become_program(source: bytes, arguments: list[str]) -> None:
    """Run the source as Python would run it from a file.

    source: in bytes; its first lines may declare an encoding. arguments: sys.argv[1:].
    """
    module = type(sys)("__main__")
    path = os.path.abspath(SOURCE_NAME)
    module.__dict__["__file__"] = path
    sys.modules["__main__"] = module
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.getcwd())

    def show(kind, error, trace):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        # Without this file's frames. Typing would need an import, which every program pays for.
        while trace and trace.tb_frame.f_code.co_filename != path:
            trace = trace.tb_next
        sys.__excepthook__(kind, error.with_traceback(trace), trace)

    sys.excepthook = show
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
