"""Grading of programs: they run in a sandbox, their results are compared outside it."""
