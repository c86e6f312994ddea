"""Environments with one question per episode."""
