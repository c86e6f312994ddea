"""The embedded sampler as a server that speaks vLLM's routes, without vLLM."""
