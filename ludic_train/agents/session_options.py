"""Options by which the calls of agent programs are recorded. Loads nothing heavy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludic_gym.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Options of the sessions of a server, by which episodes of agent programs are recorded.

    Attributes:
        out: Folder for the traces of sessions, one file each. POST /sessions opens one, with the
            server's token, which is printed at the start, or is VLLM_API_KEY.
        deadline: Seconds after which a session ends by itself.
        max_tokens: Longest reply of a request that names no limit.
    """

    out: Path | None = None
    deadline: float = 600.0
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        # Seconds of a timer: nan and infinity would end no session.
        if not 0 < self.deadline < math.inf or self.max_tokens < 1:
            raise ConfigError(
                f"deadline={self.deadline:g} must be above 0 and finite, and max_tokens="
                f"{self.max_tokens} at least 1"
            )

    def of_gateway(self, token: str) -> dict[str, Any]:
        """Arguments of a `Gateway`."""
        limits = {"deadline_s": self.deadline, "max_tokens": self.max_tokens}
        return {**limits, "out": self.out, "token": token}
