"""Planted faults: environments of ours, each with one fault that an audit has to find.

`MUTANTS` has them by id. The first line of a class names the fault.
"""

from mutants import contract, grades, leaks, seeds
from mutants.planted import MUTANTS, SOUND, register

__all__ = ["MUTANTS", "SOUND", "contract", "grades", "leaks", "register", "seeds"]
