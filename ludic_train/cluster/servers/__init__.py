"""vLLM servers with the flags of training, as child processes.

`local` is a server of our own, with the same routes.
"""
