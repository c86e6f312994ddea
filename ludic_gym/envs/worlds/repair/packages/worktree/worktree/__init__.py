"""Tasks that depend on each other."""

from worktree.graph import CycleError, Graph
from worktree.schedule import critical_path, finish_times, waves

__all__ = ["CycleError", "Graph", "critical_path", "finish_times", "waves"]
