"""Trainings that run as they are: `ludic train NAME`."""
