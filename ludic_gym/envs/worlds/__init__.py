"""Environments with a state that tools show and change."""
