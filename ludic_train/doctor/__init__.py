"""Is what a server samples what the trainer thinks it is? Checks, each with a remedy."""

from ludic_train.doctor.checks import CHECKS, Patient
from ludic_train.doctor.findings import Finding, render
from ludic_train.doctor.pushes import PUSH_CHECKS

__all__ = ["CHECKS", "PUSH_CHECKS", "Finding", "Patient", "render"]
