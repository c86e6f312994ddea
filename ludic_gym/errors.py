"""The errors that Ludic raises on purpose.

LudicError
├── ConfigError        an argument or option has a value that cannot work
│   └── MissingPackage  a package of an optional extra cannot be imported
├── EnvError           an environment was used against its contract
│   ├── ContractError  an environment breaks a rule that all text environments keep
│   ├── EpisodeOver    step() after the end, or before the first reset()
│   └── NoOracle       the environment has no best action
├── DataError          rows are missing, unreadable or lack a field
├── ClientError        a chat endpoint failed or returned an unusable response
│   ├── PromptTooLong  a prompt leaves no room for a completion
│   ├── QuotaExhausted  an account has no credit left, which no pause brings back
│   └── ScriptExhausted  a ScriptedClient has no reply left
├── SandboxError       a sandbox failed; the program in it is not to blame
│   └── NoSandbox      no sandbox works on this machine
├── GraderError        a grader reached no verdict; the reply is neither right nor wrong
├── EpisodeError       an episode failed: env, client, tool or time limit
└── NoAction           a policy that was called like a function found no action
"""

from __future__ import annotations

from typing import Literal

Blame = Literal["model", "environment", "infrastructure"]
"""Who ended an episode. Only ends by the model are evidence about it."""


class LudicError(Exception):
    """Root of every error that Ludic raises on purpose.

    blame: the cause of an episode that it ends, one of `Blame`; None for that which raised it.
    """

    blame: Blame | None = None


class ConfigError(LudicError, ValueError):
    """An argument or option has a value that cannot work; the message names valid ones."""


class MissingPackage(ConfigError):
    """A package of an optional extra cannot be imported; the message says how to install it."""


class EnvError(LudicError):
    """An environment was used against its contract."""

    blame = "environment"


class ContractError(EnvError):
    """An environment breaks a rule that all text environments keep; the message names it."""


class EpisodeOver(EnvError):
    """`step` was called after the end of the episode, or before the first `reset`."""


class NoOracle(EnvError):
    """The environment has no best action for its current state."""


class DataError(LudicError):
    """Rows of a dataset are missing, unreadable, or lack a field."""

    blame = "environment"


class ClientError(LudicError):
    """A chat endpoint failed, or returned an unusable response.

    status: HTTP status of the response; None if there was none, or it was 200.
    """

    blame: Blame | None = "infrastructure"

    def __init__(self, message: str = "", *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class PromptTooLong(ClientError):
    """A prompt leaves no room for a completion, by `max_length` or by the model's positions."""

    blame = "model"


class QuotaExhausted(ClientError):
    """An account has no credit left, which no pause brings back; the message has the remedy."""


class ScriptExhausted(ClientError):
    """A `ScriptedClient` has no reply left."""


class SandboxError(LudicError):
    """A sandbox failed; this is no evidence about its program."""

    blame: Blame | None = "infrastructure"


class NoSandbox(SandboxError):
    """No sandbox works on this machine; the message has the reasons and what to install."""


class GraderError(LudicError):
    """A grader reached no verdict, so that the reply is neither right nor wrong."""

    blame = "environment"


class EpisodeError(LudicError):
    """An episode failed: its env, client, a tool, or its time limit."""

    def __init__(self, message: str = "", *, blame: Blame | None = None) -> None:
        super().__init__(message)
        self.blame = blame


class NoAction(LudicError):
    """A policy that was called like a function found no action; the message is its feedback."""


class SampleWarning(UserWarning):
    """An environment without `split` or `data` asks a few home-made questions."""


class SkippedRowsWarning(UserWarning):
    """Rows of a data set were left out, because they cannot be asked or graded."""
