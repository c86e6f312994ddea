"""Runs as one HTML file to look at: results, plots, transcripts; from disk, without a network."""
