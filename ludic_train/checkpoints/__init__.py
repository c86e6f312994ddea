"""Checkpoints: written whole or not at all, read back bit for bit."""
