"""Benchmarks: tasks are played, counted with intervals, kept line by line, and compared."""
