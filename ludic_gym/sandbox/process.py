"""PlainProcess: limits without any protection, for trusted programs."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from functools import partial

from ludic_gym.sandbox.launch import ENVIRONMENT, Launch, interpreter, worker_command
from ludic_gym.sandbox.types import Guarantees, Limits


@dataclass(frozen=True, slots=True)
class PlainProcess:
    """The back end with resource limits only."""

    name = "process"
    guarantees = Guarantees(
        network=False, filesystem=False, processes=False, memory=False, cpu=False, disk=False
    )

    def fixed(self, limits: Limits) -> tuple[int, ...]:
        """See Backend."""
        return ()

    def launch(self, limits: Limits) -> Launch:
        """See Backend."""
        folder = tempfile.mkdtemp(prefix="ludic-")
        python, _ = interpreter()
        return Launch(
            command=worker_command(python),
            environment={**ENVIRONMENT, "HOME": folder},
            folder=folder,
            end=partial(shutil.rmtree, folder, ignore_errors=True),
        )

    def failed(self, exit_code: int) -> bool:
        """See Backend: any exit code may be the program's own."""
        return False
