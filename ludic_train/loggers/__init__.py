"""Loggers, experiment trackers and plots."""
