"""Checks that a server samples what the trainer expects, each with a remedy."""
