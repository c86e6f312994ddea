"""Benchmarks: play tasks, count successes with intervals, keep transcripts, compare runs."""
