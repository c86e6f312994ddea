"""Text environments for language-model agents. Importing this makes the `ludic/` ids known."""

from envs_registry import register_envs

__all__ = ["register_envs"]

register_envs()
