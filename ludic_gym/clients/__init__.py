"""Chat clients: the ends of the wire to whatever generates text."""

from ludic_gym.clients.base import ChatClient, ToolSchema
from ludic_gym.clients.caching import CachingClient
from ludic_gym.clients.openai import OpenAIChatClient, VLLMChatClient
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.clients.transport import HttpOptions, Usage

__all__ = [
    "CachingClient",
    "ChatClient",
    "HttpOptions",
    "OpenAIChatClient",
    "ScriptedClient",
    "ToolSchema",
    "Usage",
    "VLLMChatClient",
]
