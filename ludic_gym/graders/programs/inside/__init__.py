"""Runners inside the sandboxes. Only their text goes there; they import the standard library only.

No expected result ever enters a sandbox.
"""
