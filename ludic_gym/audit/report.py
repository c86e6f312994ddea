"""audit_env: all checks of one environment, and the report of their findings."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ludic_gym.adapters.numeric_env import NumericEnv
from ludic_gym.audit.answers import ANSWER_CHECKS
from ludic_gym.audit.doors import DOOR_CHECKS
from ludic_gym.audit.episodes import LIMIT_CHECKS, SEED_CHECKS
from ludic_gym.audit.leaks import LEAK_CHECKS
from ludic_gym.audit.scores import SCORE_CHECKS
from ludic_gym.audit.search import SEARCH_CHECKS
from ludic_gym.audit.subject import AuditSubject, Check, Finding, Outcome, Undecided
from ludic_gym.audit.tasks import TASK_CHECKS
from ludic_gym.audit.truths import TRUTH_CHECKS
from ludic_gym.envs.core.base import TextEnv
from ludic_gym.testing.check import verdicts

CHECKS: Mapping[str, Check] = {
    **SCORE_CHECKS,
    **SEARCH_CHECKS,
    **ANSWER_CHECKS,
    **DOOR_CHECKS,
    **LEAK_CHECKS,
    **TRUTH_CHECKS,
    **TASK_CHECKS,
    **SEED_CHECKS,
    **LIMIT_CHECKS,
}
OUTCOMES: tuple[Outcome, ...] = ("pass", "fail", "not judged")


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
    def truths_judged(self) -> bool:
        """True if a solver that does not know the environment has judged its truths."""
        return any(f.check in TRUTH_CHECKS and f.outcome != "not judged" for f in self.findings)

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


def audit_env(subject: AuditSubject) -> AuditReport:
    """The report of all checks.

    >>> report = audit_env(AuditSubject(env_id="ludic/ConnectFour-v0", episodes=4))
    >>> report.failed
    ()
    """
    all_findings = tuple(findings(subject))
    return AuditReport(subject=subject, findings=all_findings, ludic=version("ludic-gym"))


def findings(subject: AuditSubject) -> Iterator[Finding]:
    """The findings one after the other; each check runs when its finding is requested."""
    inner = subject.make().unwrapped
    is_ours = isinstance(inner, TextEnv) and not isinstance(inner, NumericEnv)
    start = time.process_time()
    for verdict in verdicts(subject.env_id, **subject.kwargs):
        now = time.process_time()
        outcome: Outcome = "fail" if verdict.complaint else "pass"
        if verdict.complaint and verdict.of_form and not is_ours:
            # A plain environment of Gymnasium may have another form; its reward is judged below.
            outcome = "not judged"
        yield Finding(
            check=f"contract/{verdict.rule}",
            outcome=outcome,
            summary=verdict.complaint or "kept",
            seconds=now - start,
        )
        # Each rule's time is from the end of the one before: verdicts are made while they are read.
        start = now
    for name, check in CHECKS.items():
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                outcome, summary, evidence = check(subject)
            except Undecided as error:
                outcome, summary, evidence = "not judged", str(error), {}
            # The environment is foreign code: each of its errors is a finding about it.
            except Exception as error:
                outcome, evidence = "fail", {"error": repr(error)}
                summary = f"the environment raises {error!r}"
        yield Finding(
            check=name,
            outcome=outcome,
            summary=summary,
            evidence=evidence,
            seconds=time.process_time() - start,
        )


def write_audit(report: AuditReport, folder: Path | str) -> None:
    """Write audit.json, with the evidence, into the folder, which is created if needed."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report.as_json(), indent=1) + "\n"
    (folder / "audit.json").write_text(text, encoding="utf-8")
