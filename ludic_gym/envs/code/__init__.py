"""Environments whose actions are programs, run in a sandbox."""
