"""Chat clients: the ends of the wire to whatever generates text."""

from ludic_gym.clients.base import ChatClient, ToolSchema
from ludic_gym.clients.scripted import ScriptedClient

__all__ = ["ChatClient", "ScriptedClient", "ToolSchema"]
