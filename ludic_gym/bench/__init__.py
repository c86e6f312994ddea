"""Benchmarks: tasks are played, counted with intervals, kept line by line, and compared."""

from ludic_gym.bench.comparison import Comparison, compare
from ludic_gym.bench.policies import open_policy
from ludic_gym.bench.ratings import Game, Rating, bradley_terry
from ludic_gym.bench.records import open_transcripts, read_scores
from ludic_gym.bench.result import BenchResult, Score, score
from ludic_gym.bench.runner import run_bench
from ludic_gym.bench.statistics import (
    Interval,
    bootstrap_interval,
    clustered_wilson_interval,
    pass_at_k,
    pass_hat_k,
    wilson_interval,
)
from ludic_gym.bench.tally import Tally, summarise
from ludic_gym.bench.tasks import bench_tasks

__all__ = [
    "BenchResult",
    "Comparison",
    "Game",
    "Interval",
    "Rating",
    "Score",
    "Tally",
    "bench_tasks",
    "bootstrap_interval",
    "bradley_terry",
    "clustered_wilson_interval",
    "compare",
    "open_policy",
    "open_transcripts",
    "pass_at_k",
    "pass_hat_k",
    "read_scores",
    "run_bench",
    "score",
    "summarise",
    "wilson_interval",
]
