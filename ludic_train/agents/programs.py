"""Agent programs: functions and commands, what they get of an episode, and their answers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from ludic_gym.errors import ConfigError, EpisodeError
from ludic_gym.packages import import_user_module
from ludic_gym.types import ToolSchema
from ludic_train.processes import tied_to_parent

# In an argument, replaced by the prompt.
PROMPT = "{prompt}"
ERROR_CHARACTERS = 400
# Longer answers are no actions.
ANSWER_BYTES = 2**20
_FUNCTION = re.compile(r"[\w.]+:\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask:
    """An episode as an agent program gets it.

    prompt: the first observation. system_prompt: the environment's suggestion.
    base_url: of OpenAI's API, root_url: of Anthropic's; api_key: for both. model: any name will do.
    mcp_url: tools of the environment by the Model Context Protocol; GET and POST `tools_url` give
        them by HTTP. tools: their schemas, in the format of chat APIs.
    call: `await task.call(name, arguments)` calls one of the tools; its result as text.
    """

    prompt: str
    system_prompt: str
    base_url: str
    root_url: str
    api_key: str
    model: str
    mcp_url: str
    tools_url: str
    tools: Sequence[ToolSchema]
    call: Callable[[str, Mapping[str, Any]], Awaitable[str]]

    def variables(self) -> dict[str, str]:
        """Environment variables by which SDKs and programs find the gateway and the task."""
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_KEY": self.api_key,
            "ANTHROPIC_BASE_URL": self.root_url,
            "ANTHROPIC_API_KEY": self.api_key,
            "LUDIC_MODEL": self.model,
            "LUDIC_SYSTEM_PROMPT": self.system_prompt,
            "LUDIC_MCP_URL": self.mcp_url,
            "LUDIC_TOOLS_URL": self.tools_url,
            "LUDIC_TOOLS": json.dumps(list(self.tools)),
        }


Agent = str | Callable[[AgentTask], Awaitable[str | None]] | Callable[[AgentTask], str | None]
"""A command, or a function that plays an episode and may return its answer."""


def command_of(text: str) -> list[str]:
    """Program and arguments. Raises ConfigError for a text without a program.

    >>> command_of("python 'my agent.py' --fast")
    ['python', 'my agent.py', '--fast']
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"the command {text!r} cannot be read: {error}") from error
    if not words:
        raise ConfigError(f"the agent {text!r} has no program: write a command")
    return words


def named_agent(text: str) -> Agent:
    """The function that "module:function" names, or the command itself.

    Raises ConfigError for a module without the function, and for a command without a program.
    """
    if not _FUNCTION.fullmatch(text):
        command_of(text)
        return text
    module, _, name = text.rpartition(":")
    function = getattr(import_user_module(module, text), name, None)
    if not callable(function):
        raise ConfigError(f"agent {text!r}: the module {module!r} has no function {name!r}")
    return cast(Agent, function)


async def run_program(command: str, task: AgentTask) -> str | None:
    """Run the command to its end; its output, without white space around it, None without any.

    The prompt is its standard input; an argument "{prompt}" is replaced by it, without a shell.
    Cancelled, it kills the program and all that it has started.
    Raises EpisodeError, with the end of its error output, for an exit code other than 0.
    """
    words = [task.prompt if word == PROMPT else word for word in command_of(command)]
    try:
        process = await asyncio.create_subprocess_exec(
            # Ends with this process, also where that is killed and runs no `finally`.
            *tied_to_parent(words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **task.variables()},
            start_new_session=True,
        )
    except OSError as error:
        raise EpisodeError(f"the agent {words[0]!r} cannot be started: {error}") from error
    try:
        out, err = await process.communicate(task.prompt.encode(errors="replace"))
    finally:
        # The whole group: a program may leave others behind, also after its own end.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if process.returncode != 0:
        # The end, since a traceback has its error there.
        last = err.decode(errors="replace").strip()[-ERROR_CHARACTERS:]
        raise EpisodeError(f"{words[0]!r} ended with code {process.returncode}: {last}")
    return out[:ANSWER_BYTES].decode(errors="replace").strip() or None
