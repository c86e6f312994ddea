"""One update: planned, computed, applied."""
