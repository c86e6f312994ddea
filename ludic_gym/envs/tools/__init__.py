"""Environments for policies with tools: the policy's own, or those of the environment."""
