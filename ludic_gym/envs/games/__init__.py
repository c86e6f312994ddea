"""Games: one file each."""
