"""Is what a server samples what the trainer thinks it is? Checks, each with a remedy."""
