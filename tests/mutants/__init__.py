"""Planted faults: environments of ours, each with one fault that an audit has to find.

`MUTANTS` has them by id, `FAULTS` has those of small environments of their own. The first line of a
class names the fault.
"""

from mutants import contract, grades, leaks, seeds
from mutants.planted import MUTANTS, SOUND
from mutants.planted import register as register_mutants
from mutants.small import FAULTS, SOUND_SMALL, register_small

__all__ = [
    "FAULTS",
    "MUTANTS",
    "SOUND",
    "SOUND_SMALL",
    "contract",
    "grades",
    "leaks",
    "register",
    "seeds",
]


def register():
    """Put all of them, and the environments without a fault, into Gymnasium's registry."""
    register_mutants()
    register_small()
