"""Environments of one puzzle each, and a tower of several moves."""
