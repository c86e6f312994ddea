"""SandboxedEnv: environments of several turns whose actions run programs in a sandbox."""

from __future__ import annotations

from ludic_gym.envs.core.base import Info, TextEnv, Turn
from ludic_gym.envs.core.code import PATIENCE, described
from ludic_gym.sandbox.choice import shared_sandbox
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.sandbox.types import MEBIBYTE, ExecResult, Limits, Program
from ludic_gym.tools.tool import shortened

# Characters of a program's output in an observation.
OUTPUT = 3000


class SandboxedEnv(TextEnv):
    """Runs programs of the player in the sandbox that this process shares.

    A subclass calls `run` and, if that raises SandboxError, returns `failed`.

    Attributes:
        limits: of each program.

    Args:
        sandbox: "auto" or the name of a sandbox.
        allow_unsafe: run programs without protection if no sandbox works.
        cpu_s: CPU seconds of one program.
        memory_mb: memory of one program, in MiB.
        render_mode: "ansi", "html" or None.
    """

    # Vector environments run a blocking environment on a thread of its own.
    metadata = {**TextEnv.metadata, "blocking": True}  # noqa: RUF012 (Gymnasium declares it so)

    def __init__(
        self,
        *,
        sandbox: str = "auto",
        allow_unsafe: bool = False,
        cpu_s: float = 10.0,
        memory_mb: int = 512,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.limits = Limits(
            cpu_s=cpu_s, wall_s=PATIENCE * cpu_s, memory_bytes=memory_mb * MEBIBYTE
        )
        self._sandbox = sandbox
        self._allow_unsafe = allow_unsafe

    def sandbox_info(self) -> str:
        """The sandbox and its guarantees. Raises NoSandbox if none works."""
        sandbox = shared_sandbox(self._sandbox, allow_unsafe=self._allow_unsafe)
        return described(sandbox.name, sandbox.guarantees)

    def run(self, program: Program) -> ExecResult:
        """The result of the program. Raises SandboxError if the sandbox fails."""
        sandbox = shared_sandbox(self._sandbox, allow_unsafe=self._allow_unsafe)
        return run_blocking(sandbox.run(program, limits=self.limits))

    def failed(self, error: Exception, info: Info, component: str) -> Turn:
        """The last turn of an episode whose sandbox failed."""
        found = {**info, "error": f"{type(error).__name__}: {error}"}
        # Truncated: a failure of the machine says nothing about the player.
        parts = {f"reward/{component}": 0.0}
        return "", 0.0, False, True, {"success": False, **parts, **found}


def output_of(result: ExecResult) -> str:
    """The output of a program, and how it ended unless with exit code 0."""
    parts = [
        shortened(text, OUTPUT)
        for text in (result.stdout.decode(errors="replace"), result.stderr.decode(errors="replace"))
        if text
    ]
    if result.ended != "exited":
        parts.append(f"The program was ended: {result.ended}.")
    elif result.exit_code:
        parts.append(f"Exit code {result.exit_code}.")
    return "\n".join(part.rstrip("\n") for part in parts) or "(no output)"
