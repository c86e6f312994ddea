"""Environments that ask one question."""
