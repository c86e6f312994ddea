"""Puzzles: one file each."""
