"""The commands that need the extra `train`; each imports what it needs when it runs."""
