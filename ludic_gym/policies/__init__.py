"""Policies: players of environments. They compose by wrapping."""
