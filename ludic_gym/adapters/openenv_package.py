"""Graders for `openenv validate` that read the files of a package. Requires openenv.

Each is an entry point of the group "openenv.validation.graders", as those of `openenv_graders`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from openenv.validation.graders import Subject
from openenv.validation.policy import load_policy
from openenv.validation.report import CheckResult
from openenv.validation.types import CheckStatus, Level

from ludic_gym.concurrency import Caught

Outcome = tuple[CheckStatus, str, dict[str, Any]]
Check = Callable[[Subject], Outcome]

PASS, FAIL, SKIP = CheckStatus.PASS, CheckStatus.FAIL, CheckStatus.SKIP
BOUNDS = load_policy("v2").bounds
_FROM = re.compile(r"(?mi)^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?")
LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "requirements.lock")
SBOMS = ("sbom.json", "sbom.spdx.json", "bom.json", "sbom.cdx.json")
LABELS = ("org.opencontainers.image.source", "org.opencontainers.image.version")
SECRETS = (".env", "id_rsa", ".netrc", ".npmrc", "credentials.json", ".git-credentials")


@dataclass(frozen=True, slots=True)
class LudicGrader:
    """A check in the form of OpenEnv's protocol `Grader`."""

    check_id: str
    level: Level
    check: Check
    requires_capabilities: frozenset[str] = frozenset()
    requires_provider: frozenset[Any] = frozenset()
    depends_on: tuple[str, ...] = ()

    def applies_to(self, manifest: object) -> bool:
        """True: each check decides itself where it has no evidence."""
        return True

    def run(self, subject: Subject) -> CheckResult:
        """The result of the check, with the seconds that it took."""
        start = time.monotonic()
        status, line, measured = self.check(subject)
        return CheckResult(
            check_id=self.check_id,
            status=status,
            measured=measured,
            evidence=[line],
            remediation=line if status is FAIL else None,
            duration_s=time.monotonic() - start,
        )


def grader(check_id: str, level: Level) -> Callable[[Check], LudicGrader]:
    """Decorator that makes a grader of a function."""
    depends = () if level is Level.STATIC else ("runtime.startup",)

    def made(check: Check) -> LudicGrader:
        return LudicGrader(check_id, level, check, depends_on=depends)

    return made


@grader("static.layout", Level.STATIC)
def layout(subject: Subject) -> Outcome:
    """The package has a manifest, a Dockerfile and a README."""
    found = {path.name.lower() for path in subject.root.rglob("*") if path.is_file()}
    missing = [name for name in ("openenv.yaml", "dockerfile", "readme.md") if name not in found]
    return verdict(not missing, f"missing files: {missing}" if missing else "complete", {})


@grader("static.reproducible_build", Level.STATIC)
def reproducible_build(subject: Subject) -> Outcome:
    """Base images are pinned by their digest."""
    images = re.findall(
        r"(?mi)^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", dockerfiles(subject)
    )
    stages = {stage for _, stage in images if stage}
    loose = [image for image, _ in images if "@sha256:" not in image and image not in stages]
    if not images:
        return FAIL, "no Dockerfile with a FROM line", {}
    return verdict(not loose, f"base images without a digest: {loose}", {"images": len(images)})


@grader("static.image_hygiene", Level.STATIC)
def image_hygiene(subject: Subject) -> Outcome:
    """No file of secrets is in the package, and no build step runs a script from the network."""
    secrets = [p.name for p in subject.root.rglob("*") if p.name in SECRETS]
    piped = re.findall(r"(?:curl|wget)[^\n|]*\|\s*(?:ba)?sh", dockerfiles(subject))
    return verdict(not secrets and not piped, f"secrets {secrets}, piped scripts {piped}", {})


@grader("static.oci_labels", Level.STATIC)
def oci_labels(subject: Subject) -> Outcome:
    """The image is labelled with its source and its version."""
    missing = [label for label in LABELS if label not in dockerfiles(subject)]
    return verdict(not missing, f"missing labels: {missing}", {})


@grader("static.sbom", Level.STATIC)
def sbom(subject: Subject) -> Outcome:
    """There is a bill of materials in JSON, of SPDX or CycloneDX."""
    for path in (p for p in subject.root.rglob("*.json") if p.name in SBOMS):
        with Caught(ValueError):
            found = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(found, dict) and {"spdxVersion", "bomFormat"} & found.keys():
                return PASS, f"{path.name} is a bill of materials", {}
    return FAIL, f"no bill of materials; add one of {SBOMS}", {}


@grader("static.resource_declaration", Level.STATIC)
def resource_declaration(subject: Subject) -> Outcome:
    """CPUs, memory and disk are above 0 and below those of a large machine."""
    need = subject.manifest.resources
    fits = need.cpu <= 256 and need.memory_mb <= 4_000_000 and need.disk_mb <= 20_000_000
    return verdict(fits, f"{need.cpu} CPUs, {need.memory_mb} MB, {need.disk_mb} MB disk", {})


@grader("static.timeout_ceiling", Level.STATIC)
def timeout_ceiling(subject: Subject) -> Outcome:
    """An episode ends within the policy's limit."""
    declared, limit = subject.manifest.resources.episode_timeout_s, BOUNDS.max_episode_timeout_s
    return verdict(declared <= limit, f"{declared} s, at most {limit} s", {"seconds": declared})


@grader("static.dependency_pinning", Level.STATIC)
def dependency_pinning(subject: Subject) -> Outcome:
    """There is a lock file, or each requirement has one version."""
    names = {path.name for path in subject.root.rglob("*")}
    if locks := names & set(LOCKS):
        return PASS, f"locked by {sorted(locks)}", {}
    lines = [
        line.strip()
        for path in subject.root.rglob("requirements*.txt")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip() and line.strip()[0] not in "#-"
    ]
    loose = [line for line in lines if "==" not in line and "@" not in line]
    return verdict(bool(lines) and not loose, f"not pinned: {loose or 'no requirements'}", {})


@grader("static.task_distribution_pinning", Level.STATIC)
def task_distribution_pinning(subject: Subject) -> Outcome:
    """The tasks are pinned by a generator's seed or a dataset's version."""
    pin = subject.manifest.task_distribution
    pinned = pin is not None and (pin.generator_seed is not None or bool(pin.dataset_version))
    return verdict(pinned, f"task distribution: {pin}", {})


def verdict(passed: bool, line: str, measured: dict[str, Any]) -> Outcome:
    """PASS or FAIL, with a line of evidence and measured values."""
    return (PASS if passed else FAIL), line[:500], measured


def dockerfiles(subject: Subject) -> str:
    """All Dockerfiles of the package."""
    files = [path for path in subject.root.rglob("Dockerfile*") if path.is_file()]
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)
