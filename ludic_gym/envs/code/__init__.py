"""Environments in which programs are written; they run in a sandbox."""
