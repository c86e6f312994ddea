"""Steps of `benchmarks/accept_gpu.py`, and what they need."""
