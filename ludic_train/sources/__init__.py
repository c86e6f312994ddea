"""Batch sources: rollouts that are played now or elsewhere, or existing data."""
