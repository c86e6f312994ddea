"""Starting vLLM with what reinforcement learning needs, and stopping it without a trace.

`local` is a server of our own, with the same routes.
"""
