"""The errata: dated faults of tasks of other packages, by version, and what is done about them."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Erratum:
    """A fault of an environment of another package.

    package, version: the last version that was seen to have it.
    date, report: day and place of the report.
    fault: the fault as a clause: "the reply 0 is right in 88 % of the tasks".
    action: "mended", or "noted" (it is played as it is).
    mend: rule of a mended environment; "" for others.
    """

    package: str
    version: str
    date: datetime.date
    report: str
    fault: str
    action: str
    mend: str = ""

    @property
    def note(self) -> str:
        """Action, date and fault in one line."""
        return f"{self.action}, {self.package} {self.version}, {self.date}: {self.fault}"


_TEXT = Path(__file__).with_name("errata.toml").read_text(encoding="utf-8")

ERRATA: Mapping[str, Erratum] = MappingProxyType(
    {env_id: Erratum(**block) for env_id, block in tomllib.loads(_TEXT).items()}
)
"""The fault of an id."""
