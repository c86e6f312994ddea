"""A training run: config, folder, evaluation, checkpoints, report."""
