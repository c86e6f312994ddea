"""Packages, bugs and the grader of RepoRepair."""
