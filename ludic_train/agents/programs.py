"""Agent programs that are commands: their arguments, variables, input and answer."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from ludic_gym.errors import ConfigError, EpisodeError
from ludic_train.processes import guarded

if TYPE_CHECKING:
    from ludic_train.agents.agents import AgentTask

# In an argument, replaced by the prompt.
PROMPT = "{prompt}"
ERROR_CHARACTERS = 400
# Longer answers are no actions.
ANSWER_BYTES = 2**20


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


def variables_of(task: AgentTask) -> dict[str, str]:
    """Environment variables by which SDKs and programs find the gateway and the task."""
    return {
        "OPENAI_BASE_URL": task.base_url,
        "OPENAI_API_KEY": task.api_key,
        "ANTHROPIC_BASE_URL": task.root_url,
        "ANTHROPIC_API_KEY": task.api_key,
        "LUDIC_MODEL": task.model,
        "LUDIC_SYSTEM_PROMPT": task.system_prompt,
        "LUDIC_MCP_URL": task.mcp_url,
        "LUDIC_TOOLS_URL": task.tools_url,
        "LUDIC_TOOLS": json.dumps(list(task.tools)),
    }


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
            *guarded(words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **variables_of(task)},
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
