"""Chat clients: the ends of the wire to whatever generates text."""

from ludic_gym.clients.base import ChatClient, ToolSchema
from ludic_gym.clients.caching import CachingClient
from ludic_gym.clients.openai import OpenAIChatClient
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.clients.transport import HttpOptions, Usage
from ludic_gym.clients.vllm_chat import VLLMChatClient
from ludic_gym.clients.vllm_tokens import VLLMTokenClient

__all__ = [
    "CachingClient",
    "ChatClient",
    "HttpOptions",
    "OpenAIChatClient",
    "ScriptedClient",
    "ToolSchema",
    "Usage",
    "VLLMChatClient",
    "VLLMTokenClient",
]
