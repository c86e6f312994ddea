"""Rollouts: episodes of policies in environments, one or many at once."""
