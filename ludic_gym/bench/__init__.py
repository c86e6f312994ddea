"""Benchmarks: tasks are played, counted with intervals, and kept line by line."""

from ludic_gym.bench.policies import open_policy
from ludic_gym.bench.records import open_transcripts
from ludic_gym.bench.result import BenchResult, Score, score, summarise
from ludic_gym.bench.runner import run_bench
from ludic_gym.bench.statistics import Interval, mean_interval, wilson_interval
from ludic_gym.bench.tasks import bench_tasks

__all__ = [
    "BenchResult",
    "Interval",
    "Score",
    "bench_tasks",
    "mean_interval",
    "open_policy",
    "open_transcripts",
    "run_bench",
    "score",
    "summarise",
    "wilson_interval",
]
