"""Wrappers of Gymnasium environments: recording, limits, rewards, chat messages, curricula."""
