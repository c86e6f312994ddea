"""audit_env: all checks of one environment, and the report of their findings, as a page too."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ludic_gym.audit.answers import ANSWER_CHECKS
from ludic_gym.audit.episodes import LIMIT_CHECKS, SEED_CHECKS
from ludic_gym.audit.leaks import LEAK_CHECKS
from ludic_gym.audit.scores import SCORE_CHECKS
from ludic_gym.audit.subject import AuditSubject, Check, Finding, Outcome, Undecided
from ludic_gym.packages import find_plugins, load_plugin
from ludic_gym.testing.check import verdicts

CHECKS: Mapping[str, Check] = {
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

    plugins: True to run the checks of other packages too.

    >>> report = audit_env(AuditSubject(env_id="ludic/ConnectFour-v0", episodes=4))
    >>> report.failed
    ()
    """
    found = tuple(findings(subject, plugins=plugins))
    return AuditReport(subject=subject, findings=found, ludic=version("ludic-gym"))


def findings(subject: AuditSubject, *, plugins: bool = False) -> Iterator[Finding]:
    """The findings one after the other; each check runs when its finding is requested."""
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
    checks = dict(CHECKS)
    if plugins:
        checks |= {name: load_plugin(point) for name, point in find_plugins(PLUGINS).items()}
    for name, check in checks.items():
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                outcome, summary, evidence = check(subject)
            except Undecided as error:
                outcome, summary, evidence = "unknown", str(error), {}
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


# Dark enough on white, and white on them, for readers with low vision (WCAG AA).
COLORS: dict[Outcome, str] = {"pass": "#1a7f37", "fail": "#b42318", "unknown": "#57606a"}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1f2328; background: #fff }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem;
  border-bottom: 1px solid #d0d7de }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f8fa; padding: .6rem }
.pass, .fail, .unknown { font-weight: 600 }
"""
COLOR_RULES = "".join(f".{name} {{ color: {color} }}\n" for name, color in COLORS.items())


def audit_page(report: AuditReport) -> str:
    """The report as one HTML page without scripts or external resources, faults first."""
    title = f"Audit of {report.subject.env_id}"
    order = sorted(report.findings, key=lambda f: ("fail", "unknown", "pass").index(f.outcome))
    counts = ", ".join(f"{report.counts[name]} {name}" for name in OUTCOMES)
    kwargs = json.dumps(dict(report.subject.kwargs), default=repr)
    about = f"{counts}; {report.seconds:.1f} CPU-seconds; Ludic {report.ludic}; arguments {kwargs}"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Texts of environments are escaped; if one were not, no script could run.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}{COLOR_RULES}</style>\n</head>\n<body>\n"
        f"<main>\n<h1>{escape(title)}</h1>\n<p>{escape(about)}</p>\n<table>\n"
        '<thead><tr><th scope="col">outcome</th><th scope="col">check</th>'
        '<th scope="col">finding</th></tr></thead>\n<tbody>\n'
        f"{''.join(map(_row, order))}</tbody>\n</table>\n</main>\n</body>\n</html>\n"
    )


def write_audit(report: AuditReport, folder: Path) -> None:
    """Write audit.json and audit.html into the folder, which is created if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report.as_json(), indent=1) + "\n"
    (folder / "audit.json").write_text(text, encoding="utf-8")
    (folder / "audit.html").write_text(audit_page(report), encoding="utf-8", errors="replace")


def _row(finding: Finding) -> str:
    shown = json.dumps(finding.evidence, indent=1, default=repr)
    details = f"<details><summary>evidence</summary><pre>{escape(shown)}</pre></details>"
    return (
        f'<tr><td class="{finding.outcome}">{finding.outcome}</td>'
        f"<td>{escape(finding.check)}</td>"
        f"<td>{escape(finding.summary)}{details if finding.evidence else ''}</td></tr>\n"
    )
