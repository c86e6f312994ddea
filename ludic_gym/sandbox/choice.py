"""Sandboxes by name, or the one that works on this machine."""

from functools import cache

from ludic_gym.errors import ConfigError, NoSandbox, SandboxError
from ludic_gym.sandbox.launch import NATIVE, PLAIN, Backend
from ludic_gym.sandbox.local import LocalSandbox
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.sandbox.types import Limits, Program, Sandbox

NAMES = ("auto", NATIVE.name, PLAIN.name)
TRIAL = Program(source="print('works')")
TRIAL_LIMITS = Limits(wall_s=60.0)
REMEDY = (
    "It needs Linux, and user namespaces unless you are root; or, for programs that you trust with "
    "your files and your network, allow_unsafe=True"
)


def open_sandbox(
    name: str = "auto",
    *,
    allow_unsafe: bool = False,
    warm: int | None = None,
    concurrency: int | None = None,
) -> Sandbox:
    r"""A new sandbox; `await sandbox.close()` ends what it keeps warm.

    name: "native", or "auto" for the same where it works. It is tried once per process, which takes
        a fraction of a second.
    allow_unsafe: permit "process", a plain subprocess without any protection, also as the last
        resort of "auto".
    warm, concurrency: processes in reserve, and programs at a time; by default the number of CPUs
        (8 at most), and twice that.
    Raises NoSandbox with the remedy, and ConfigError for other names.

        sandbox = open_sandbox()
        result = await sandbox.run(Program(source="print(6 * 7)"), limits=Limits(wall_s=5.0))
        assert (result.ended, result.stdout) == ("exited", b"42\n")
    """
    backend = _backend(name, allow_unsafe=allow_unsafe)
    return LocalSandbox(backend, warm=warm, concurrency=concurrency)


def _backend(name: str, *, allow_unsafe: bool) -> Backend:
    if name not in NAMES:
        raise ConfigError(f"no sandbox {name!r}; there are {', '.join(NAMES)}")
    if name == PLAIN.name:
        if not allow_unsafe:
            raise ConfigError(f"{name!r} protects nothing; allow_unsafe=True if you mean it")
        return PLAIN
    reason = why_not()
    if not reason:
        return NATIVE
    if name == "auto" and allow_unsafe:
        return PLAIN
    raise NoSandbox(f"no sandbox works here ({NATIVE.name}: {reason}). {REMEDY}")


@cache
def why_not() -> str:
    """Reason why "native" does not work here, "" if it does; tested once, with a program."""

    async def trial() -> str:
        sandbox = LocalSandbox(NATIVE, warm=0)
        try:
            result = await sandbox.run(TRIAL, limits=TRIAL_LIMITS)
        except SandboxError as error:
            return str(error)
        finally:
            await sandbox.close()
        return "" if result.stdout == b"works\n" else f"its trial ended like this: {result}"

    return run_blocking(trial())


_shared: dict[str, Sandbox] = {}


def shared_sandbox(name: str = "auto", *, allow_unsafe: bool = False) -> Sandbox:
    """The sandbox of that name that this whole process shares; it is closed at exit.

    name, allow_unsafe: as in `open_sandbox`, whose errors are raised. "auto" and the name that it
    selects give the same sandbox.
    """
    backend = _backend(name, allow_unsafe=allow_unsafe)
    # If two threads arrive here at once, one sandbox is dropped before it has started anything.
    return _shared.get(backend.name) or _shared.setdefault(backend.name, LocalSandbox(backend))
