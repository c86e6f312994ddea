"""audit_env: all checks of one environment, and the report of their findings."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from ludic_gym.audit.answers import ANSWER_CHECKS
from ludic_gym.audit.leaks import LEAK_CHECKS
from ludic_gym.audit.limits import LIMIT_CHECKS
from ludic_gym.audit.scores import SCORE_CHECKS
from ludic_gym.audit.seeds import SEED_CHECKS
from ludic_gym.audit.subject import AuditSubject, Finding, Outcome, Result
from ludic_gym.plugins import find_plugins, load_plugin
from ludic_gym.testing.check import verdicts

CHECKS: Mapping[str, Callable[[AuditSubject], Result]] = {
    **SCORE_CHECKS,
    **ANSWER_CHECKS,
    **LEAK_CHECKS,
    **SEED_CHECKS,
    **LIMIT_CHECKS,
}
OUTCOMES: tuple[Outcome, ...] = ("pass", "fail", "unknown")
# Entry points of checks in other packages: functions of a AuditSubject that return a Result.
PLUGINS = "ludic.audits"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """Findings of one environment.

    subject: arguments and statement of the audit. seconds: CPU time of this process.
    """

    subject: AuditSubject
    findings: tuple[Finding, ...]
    ludic: str

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The findings that are faults."""
        return tuple(f for f in self.findings if f.outcome == "fail")

    @property
    def counts(self) -> dict[Outcome, int]:
        """Number of findings by outcome."""
        return {name: sum(f.outcome == name for f in self.findings) for name in OUTCOMES}

    @property
    def seconds(self) -> float:
        """CPU time of all checks, in seconds."""
        return sum(f.seconds for f in self.findings)

    def as_json(self) -> dict[str, Any]:
        """The report as values of JSON."""
        report = {
            "schema": 1,
            "ludic": self.ludic,
            "env": self.subject.env_id,
            "kwargs": dict(self.subject.kwargs),
            "statement": asdict(self.subject.statement),
            "counts": self.counts,
            "seconds": round(self.seconds, 3),
            "findings": [asdict(f) for f in self.findings],
        }
        # Evidence has values of environments, which may be any objects.
        return dict(json.loads(json.dumps(report, default=repr)))


def audit_env(subject: AuditSubject, *, plugins: bool = False) -> AuditReport:
    """The report of all checks.

    plugins: True to run the checks of other packages too, such as `learnability` of the trainer,
        which takes minutes.

    >>> report = audit_env(AuditSubject(env_id="ludic/Nim-v0", episodes=4))
    >>> report.failed
    ()
    """
    found = tuple(findings(subject, plugins=plugins))
    return AuditReport(subject=subject, findings=found, ludic=version("ludic-gym"))


def findings(subject: AuditSubject, *, plugins: bool = False) -> Iterator[Finding]:
    """The findings one after the other; each check runs when its finding is requested."""
    yield from _contract(subject)
    checks = dict(CHECKS)
    if plugins:
        checks |= {name: load_plugin(point) for name, point in find_plugins(PLUGINS).items()}
    for name, check in checks.items():
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome, summary, evidence = _result(check, subject)
        yield Finding(
            check=name,
            outcome=outcome,
            summary=summary,
            evidence=evidence,
            seconds=time.process_time() - start,
        )


def _contract(subject: AuditSubject) -> Iterator[Finding]:
    """A finding per rule of `ludic check`."""
    start = time.process_time()
    for verdict in verdicts(subject.env_id, **subject.kwargs):
        now = time.process_time()
        yield Finding(
            check=f"contract/{verdict.rule}",
            outcome="fail" if verdict.complaint else "pass",
            summary=verdict.complaint or "kept",
            seconds=now - start,
        )
        # Each rule's time is from the end of the one before: verdicts are made while they are read.
        start = now


def _result(check: Callable[[AuditSubject], Result], subject: AuditSubject) -> Result:
    # The environment is foreign code: each of its errors is a finding about it.
    try:
        return check(subject)
    except Exception as error:
        return "fail", f"the environment raises {error!r}", {"error": repr(error)}
