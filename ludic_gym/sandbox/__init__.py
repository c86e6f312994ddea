"""Sandboxes for untrusted programs: limits and guarantees as data, one protocol."""
