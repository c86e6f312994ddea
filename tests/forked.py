"""Python programs in real processes that are forked from one that has imported torch.

`Python` and `run` take the place of `subprocess.Popen` and `subprocess.run`: a program starts
without the five seconds that importing torch and transformers takes. It gets its own environment,
folder, output and signals, and ends as programs do: threads are waited for and exit hooks run. Only
the interpreter is not taken apart.
"""

import atexit
import fcntl
import gc
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

TESTS = Path(__file__).parent
MEMBER = b"member"
# The exit code of a program that has ended, or less than 0 for the signal that ended it.
ENDS = []
IMPORTS = (
    "torch.optim.adamw",
    "torch.distributed.fsdp",
    "peft",
    "transformers.models.llama.modeling_llama",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.tokenization_utils_fast",
    "ludic_gym",
    "ludic_train.checkpoints.training_state",
    "ludic_train.commands.train",
    "ludic_train.cluster.actor",
    "ludic_train.cluster.queues.redis_queue",
    "ludic_train.runs.train",
    "ludic_train.trainer.trainer",
    "starlette.applications",
    "uvicorn",
)


class Python:
    """A running Python program; has what the tests use of `subprocess.Popen`."""

    def __init__(self, arguments, *, env=None, cwd=None, stdout=None, stderr=None):
        """arguments: [script, ...], ["-m", module, ...] or ["-c", program, ...], with
            ["-W", filter] before it or not.

        Outputs are as in `subprocess`.
        """
        self.args, self.returncode, self.stdout, self.stderr = list(arguments), None, None, None
        files = []
        for name, target in (("stdout", stdout), ("stderr", stderr)):
            if target == subprocess.PIPE:
                ours, theirs = os.pipe()
                setattr(self, name, os.fdopen(ours, encoding="utf-8", errors="replace"))
            elif target == subprocess.STDOUT:
                theirs = os.dup(files[0])
            elif target in (None, subprocess.DEVNULL):
                theirs = os.open(os.devnull, os.O_WRONLY)
            else:
                theirs = os.dup(target if isinstance(target, int) else target.fileno())
            files.append(theirs)
        order = {
            "arguments": list(map(str, arguments)),
            "env": {**os.environ} if env is None else dict(env),
            "cwd": str(cwd or os.getcwd()),
        }
        self._status = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._status.connect(_server(os.getpid()))
        socket.send_fds(self._status, [json.dumps(order).encode()], files)
        for file in files:
            os.close(file)
        self.pid = int(self._status.recv(64))

    def poll(self):
        return self._ended(0)

    def wait(self, timeout=None):
        if self._ended(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def communicate(self, timeout=None):
        texts = {}

        def read(name):
            stream = getattr(self, name)
            texts[name] = None if stream is None or stream.closed else stream.read()

        threads = [
            threading.Thread(target=read, args=(n,), daemon=True) for n in ("stdout", "stderr")
        ]
        for thread in threads:
            thread.start()
        self.wait(timeout)
        for thread in threads:
            thread.join()
        for stream in filter(None, (self.stdout, self.stderr)):
            stream.close()
        return texts["stdout"], texts["stderr"]

    def send_signal(self, signum):
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for stream in filter(None, (self.stdout, self.stderr)):
            stream.close()
        self.wait()

    def _ended(self, timeout):
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                self.returncode = int(self._status.recv(64))
            except (BlockingIOError, TimeoutError):
                return None
            self._status.close()
        return self.returncode


def run(arguments, *, timeout=None, **options):
    """The program to its end, with its outputs; as `subprocess.run(..., capture_output=True)`."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    program = Python(arguments, **options)
    try:
        out, err = program.communicate(timeout)
    except subprocess.TimeoutExpired:
        program.kill()
        raise
    return subprocess.CompletedProcess(arguments, program.returncode, out, err)


def spawn(arguments, log, env):
    """As `ludic_train.processes.spawn`, of a Python program."""
    with log.open("ab") as output:
        return Python(arguments, env=env, stdout=output, stderr=subprocess.STDOUT)


@cache
def _server(owner):
    """Address of the process to fork from, which ends with the last process that uses it.

    All workers of one run of tests share it, because its imports take seconds.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"alone{owner}")
    folder = Path(tempfile.gettempdir()) / f"forks-{run}"
    folder.mkdir(mode=0o700, exist_ok=True)
    address = str(folder / "socket")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        member = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            member.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            # No process yet, or one that was killed and left its address behind.
            Path(address).unlink(missing_ok=True)
            _start(address, owner)
            member.connect(address)
        member.send(MEMBER)
    atexit.register(_leave, member, owner)
    return address


def _start(address, owner):
    ready, theirs = os.pipe()
    path = f"{TESTS}{os.pathsep}{TESTS.parent}"
    process = subprocess.Popen(
        [sys.executable, __file__, address, str(theirs)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        pass_fds=(theirs,),
        start_new_session=True,
    )
    os.close(theirs)
    assert os.read(ready, 1) == b"1", "the process to fork from could not import torch"
    os.close(ready)
    atexit.register(_wait_for, process, owner)


def _wait_for(process, owner):
    if os.getpid() == owner:
        process.wait()


def _leave(member, owner):
    """The last that leaves ends the process and all that were forked from it."""
    if os.getpid() == owner:
        member.close()


def serve(address, ready):
    """Fork for each order; return the order, in the child alone."""
    for name in IMPORTS:
        # Some are of extras, which are not everywhere where tests start programs.
        with suppress(ModuleNotFoundError):
            import_module(name)
    _warm_up()
    # Collections in a child, as at its exit, would copy the memory of all these objects.
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen(64)
    os.write(ready, b"1")
    os.close(ready)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ, None)
    children, members = {}, []
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                client, _ = listener.accept()
                data, files, _, _ = socket.recv_fds(client, 2**20, 2)
                if data == MEMBER:
                    members.append(client)
                    selector.register(client, selectors.EVENT_READ, None)
                    continue
                pid = os.fork()
                if pid == 0:
                    for each in children:
                        os.close(each)
                    # Objects that own a descriptor would close it again when they are collected,
                    # and it would be another one's by then.
                    clients = [client for _, client in children.values()]
                    for each in [selector, listener, client, *members, *clients]:
                        each.close()
                    return json.loads(data), files
                for file in files:
                    os.close(file)
                client.send(str(pid).encode())
                child = os.pidfd_open(pid)
                children[child] = pid, client
                selector.register(child, selectors.EVENT_READ, None)
            elif key.fileobj in members:
                selector.unregister(key.fileobj)
                members.remove(key.fileobj)
                key.fileobj.close()
                if not members:
                    _end(address, children)
            else:
                pid, client = children.pop(key.fileobj)
                selector.unregister(key.fileobj)
                os.close(key.fileobj)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(BrokenPipeError):
                    client.send(str(code).encode())
                client.close()


def _end(address, children):
    for pid, _ in children.values():
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(Path(address).parent)
    os._exit(0)


def _warm_up():
    """Import what torch imports at its first step."""
    import torch

    param = torch.nn.Parameter(torch.zeros(1))
    param.grad = torch.ones(1)
    torch.optim.AdamW([param], fused=True).step()


def execute(order, files):
    """Be the program of the order."""
    for file, standard in zip(files, (1, 2), strict=True):
        os.dup2(file, standard)
        os.close(file)
    # Its own process group, which can be ended as one.
    os.setsid()
    os.environ.clear()
    os.environ.update(order["env"])
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    os.chdir(order["cwd"])
    first, *others = order["arguments"]
    if first == "-W":
        warnings.simplefilter(others[0])
        first, *others = others[1:]
    code = 1
    try:
        if first == "-m":
            sys.argv, sys.path[0] = ["", *others[1:]], order["cwd"]
            runpy.run_module(others[0], run_name="__main__", alter_sys=True)
        elif first == "-c":
            sys.argv, sys.path[0] = ["-c", *others[1:]], ""
            exec(compile(others[0], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv, sys.path[0] = [first, *others], str(Path(first).parent)
            runpy.run_path(first, run_name="__main__")
        code = 0
    except SystemExit as error:
        code = error.code & 255 if isinstance(error.code, int) else int(error.code is not None)
        raise
    except KeyboardInterrupt:
        code = -signal.SIGINT
        raise
    finally:
        ENDS.append(code)


def _end_as_told():
    """End with the code in `ENDS`, after all other hooks, which are registered later.

    The interpreter would go on to take apart all modules that are imported, whose memory each
    process would first copy: 0.4 CPU seconds.
    """
    if not ENDS:
        return
    # Objects that nothing refers to may warn that they have not been closed.
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    if ENDS[0] < 0:
        signal.signal(-ENDS[0], signal.SIG_DFL)
        os.kill(os.getpid(), -ENDS[0])
    os._exit(ENDS[0])


if __name__ == "__main__":
    atexit.register(_end_as_told)
    execute(*serve(sys.argv[1], *map(int, sys.argv[2:])))
