"""Policies: whatever acts in an environment. They compose by wrapping."""
