"""Which sandbox: by name, or the strongest that works here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

from ludic_gym.errors import ConfigError, NoSandbox, SandboxError
from ludic_gym.sandbox.bubblewrap import Bubblewrap
from ludic_gym.sandbox.container import Container
from ludic_gym.sandbox.launch import Backend
from ludic_gym.sandbox.local import LocalSandbox
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.sandbox.native import Native
from ludic_gym.sandbox.process import PlainProcess
from ludic_gym.sandbox.types import Limits, Program, Sandbox

# The strongest first.
BACKENDS: Mapping[str, Callable[[], Backend]] = {
    "bubblewrap": Bubblewrap,
    "native": Native,
    "docker": partial(Container, "docker"),
    "podman": partial(Container, "podman"),
}
MONTY = "monty"
UNSAFE = "process"
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
    """A new sandbox; `await sandbox.close()` ends what it keeps warm.

    name: one of `sandbox_names()`, or "auto" for the first of them that runs every program and
    works here, which takes a fraction of a second to find out, once per process. allow_unsafe:
    "process", a plain subprocess without any protection, may be asked for, and is what "auto" is
    left with where nothing works. warm, concurrency: processes in reserve, and programs at a
    time; by default the number of CPUs (8 at most), and twice that. "monty" has its own.
    Raises NoSandbox, which says what to install, and ConfigError for other names.
    """
    chosen = chosen_name(name, allow_unsafe=allow_unsafe)
    if chosen == MONTY:
        return _monty()
    return LocalSandbox(_backend(chosen), warm=warm, concurrency=concurrency)


def _monty() -> Sandbox:
    try:
        from ludic_gym.sandbox.monty import MontySandbox
    except ModuleNotFoundError as error:
        raise NoSandbox("monty needs pydantic-monty: pip install 'ludic-gym[tools]'") from error
    return MontySandbox()


def chosen_name(name: str, *, allow_unsafe: bool) -> str:
    """The name of the sandbox that `open_sandbox` would give. Raises what it raises."""
    if name not in ("auto", *sandbox_names()):
        raise ConfigError(f"no sandbox {name!r}; there are auto, {', '.join(sandbox_names())}")
    if name == UNSAFE and not allow_unsafe:
        raise ConfigError(f"{name!r} protects nothing; allow_unsafe=True if you mean it")
    if name in (MONTY, UNSAFE):
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
    """All sandboxes that can be asked for; "auto" tries them in this order, up to "monty"."""
    return (*BACKENDS, MONTY, UNSAFE)


@cache
def why_not(name: str) -> str:
    """Why that sandbox does not work here, "" if it does; found out by running a program."""
    return run_blocking(_trial(LocalSandbox(_backend(name), warm=0)))


async def _trial(sandbox: Sandbox) -> str:
    try:
        result = await sandbox.run(TRIAL, limits=TRIAL_LIMITS)
    except SandboxError as error:
        return str(error)
    finally:
        await sandbox.close()
    return "" if result.stdout == b"works\n" else f"its trial ended like this: {result}"


def _backend(name: str) -> Backend:
    return PlainProcess() if name == UNSAFE else BACKENDS[name]()


_shared: dict[str, Sandbox] = {}


def shared_sandbox(name: str = "auto", *, allow_unsafe: bool = False) -> Sandbox:
    """The sandbox of that name that all of this process share; nobody needs to close it.

    Raises what `open_sandbox` raises.
    """
    chosen = chosen_name(name, allow_unsafe=allow_unsafe)
    if chosen in _shared:
        return _shared[chosen]
    # Of two threads that get here, one gives up a sandbox that has not started anything.
    return _shared.setdefault(chosen, open_sandbox(chosen, allow_unsafe=allow_unsafe))
