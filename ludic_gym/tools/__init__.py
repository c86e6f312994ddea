"""Tools: functions that a model may call, and some that are ready."""

from ludic_gym.tools.calculator import calculator_tool
from ludic_gym.tools.files import SimulatedFiles
from ludic_gym.tools.mcp_client import mcp_tools
from ludic_gym.tools.python import python_tool
from ludic_gym.tools.search import Document, search_tools
from ludic_gym.tools.tool import Tool, as_tool, call_tool

__all__ = [
    "Document",
    "SimulatedFiles",
    "Tool",
    "as_tool",
    "calculator_tool",
    "call_tool",
    "mcp_tools",
    "python_tool",
    "search_tools",
]
