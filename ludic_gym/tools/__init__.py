"""Tools: functions that a model may call, and some that are ready."""

from ludic_gym.tools.tool import Tool, as_tool, call_tool

__all__ = ["Tool", "as_tool", "call_tool"]
