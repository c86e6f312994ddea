"""A server for agent programs in which every sampled token is kept for training."""
