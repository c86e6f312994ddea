"""Where batches come from: rollouts played now or elsewhere, or data that exists."""
