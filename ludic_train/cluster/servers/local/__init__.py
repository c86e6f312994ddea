"""the local engine as a server that speaks vLLM's routes, without vLLM."""
