"""Environments that are played with tools: a policy's own, or those of the environment."""
