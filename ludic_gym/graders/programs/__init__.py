"""Grading programs: they run in a sandbox, and what they gave is compared outside it."""
