"""Base classes of environments."""
