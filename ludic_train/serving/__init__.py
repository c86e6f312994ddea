"""Starting vLLM with what reinforcement learning needs, and stopping it without a trace.

`embedded` is a server of our own, with the same routes.
"""

from ludic_train.serving.flags import ServeOptions, command_line, environment
from ludic_train.serving.installed import Installed, find_vllm
from ludic_train.serving.process import ServerProcess, started_server

__all__ = [
    "Installed",
    "ServeOptions",
    "ServerProcess",
    "command_line",
    "environment",
    "find_vllm",
    "started_server",
]
