"""Prompts of token ids, of several lengths."""

PROMPTS = [[(7 * i + 3 * j) % 250 for j in range(5 + 4 * i)] for i in range(6)]
# vLLM's blocks on a CPU have 128 tokens: this prompt fills one, which the prefix cache keeps.
LONG = [(11 * j + j * j) % 250 for j in range(200)]
