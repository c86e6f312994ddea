"""Models and tokenizers: loaded, made, saved; log-probs of their tokens."""
