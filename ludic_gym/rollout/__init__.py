"""Rollouts: policies and environments brought together, one episode or many at once."""
