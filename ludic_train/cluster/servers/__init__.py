"""vLLM servers with the flags of training, as child processes."""
