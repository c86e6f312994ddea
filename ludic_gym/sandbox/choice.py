"""Sandboxes by name, or the strongest that works on this machine."""

from collections.abc import Mapping
from functools import cache

from ludic_gym.errors import ConfigError, NoSandbox, SandboxError
from ludic_gym.sandbox.container import container
from ludic_gym.sandbox.launch import PLAIN, Backend
from ludic_gym.sandbox.linux import BUBBLEWRAP, NATIVE
from ludic_gym.sandbox.local import LocalSandbox
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.sandbox.types import Limits, Program, Sandbox

# The strongest first.
BACKENDS: Mapping[str, Backend] = {
    backend.name: backend
    for backend in (BUBBLEWRAP, NATIVE, container("docker"), container("podman"))
}
UNSAFE = PLAIN.name
TRIAL = Program(source="print('works')")
TRIAL_LIMITS = Limits(wall_s=60.0)
REMEDY = (
    "Install one: apt install bubblewrap; or, for programs that you trust with your files and "
    "your network, allow_unsafe=True"
)


def open_sandbox(
    name: str = "auto",
    *,
    allow_unsafe: bool = False,
    warm: int | None = None,
    concurrency: int | None = None,
) -> Sandbox:
    r"""A new sandbox; `await sandbox.close()` ends what it keeps warm.

    name: one of `sandbox_names()`, or "auto" for the first of them that works here. Each is tried
        once per process, which takes a fraction of a second.
    allow_unsafe: permit "process", a plain subprocess without any protection, also as the last
        resort of "auto".
    warm, concurrency: processes in reserve, and programs at a time; by default the number of CPUs
        (8 at most), and twice that.
    Raises NoSandbox with the packages to install, and ConfigError for other names.

        sandbox = open_sandbox()
        result = await sandbox.run(Program(source="print(6 * 7)"), limits=Limits(wall_s=5.0))
        assert (result.ended, result.stdout) == ("exited", b"42\n")
    """
    chosen = chosen_name(name, allow_unsafe=allow_unsafe)
    backend = PLAIN if chosen == UNSAFE else BACKENDS[chosen]
    return LocalSandbox(backend, warm=warm, concurrency=concurrency)


def chosen_name(name: str, *, allow_unsafe: bool) -> str:
    """The name of the sandbox that `open_sandbox` would open. Raises the same errors.

    name, allow_unsafe: as there. "auto" becomes the name of a back end.
    """
    if name not in ("auto", *sandbox_names()):
        raise ConfigError(f"no sandbox {name!r}; there are auto, {', '.join(sandbox_names())}")
    if name == UNSAFE:
        if not allow_unsafe:
            raise ConfigError(f"{name!r} protects nothing; allow_unsafe=True if you mean it")
        return name
    reasons: dict[str, str] = {}
    for one in BACKENDS if name == "auto" else (name,):
        reasons[one] = why_not(one)
        if not reasons[one]:
            return one
    if name == "auto" and allow_unsafe:
        return UNSAFE
    listed = "; ".join(f"{one}: {reason}" for one, reason in reasons.items())
    raise NoSandbox(f"no sandbox works here ({listed}). {REMEDY}")


def sandbox_names() -> tuple[str, ...]:
    """Names of all sandboxes; "auto" tries them in this order."""
    return (*BACKENDS, UNSAFE)


@cache
def why_not(name: str) -> str:
    """Reason why that sandbox does not work here, "" if it does; tested with a program.

    name: a key of `BACKENDS`. The result holds for the life of this process.
    """
    sandbox = LocalSandbox(BACKENDS[name], warm=0)

    async def trial() -> str:
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
    chosen = chosen_name(name, allow_unsafe=allow_unsafe)
    if chosen in _shared:
        return _shared[chosen]
    # If two threads arrive here at once, one sandbox is dropped before it has started anything.
    return _shared.setdefault(chosen, open_sandbox(chosen, allow_unsafe=allow_unsafe))
