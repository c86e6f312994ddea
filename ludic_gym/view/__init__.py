"""Runs as one HTML file to look at: results, plots, transcripts; from disk, without a network."""

from ludic_gym.view.bench import bench_view
from ludic_gym.view.page import page, view_of, write_page
from ludic_gym.view.training import training_view

__all__ = ["bench_view", "page", "training_view", "view_of", "write_page"]
