"""Algorithms: presets, and the credit, losses and shares that they are made of."""
