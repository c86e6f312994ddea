"""A look at a pipeline while it runs: on the screen, or as metrics for Prometheus."""
