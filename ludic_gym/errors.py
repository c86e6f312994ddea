"""Everything that Ludic raises on purpose.

LudicError
├── ConfigError        an argument or option has a value that cannot work
├── EnvError           an environment was used against its contract
│   ├── ContractError  an environment breaks a rule that all text environments keep
│   ├── EpisodeOver    step() after the end, or before the first reset()
│   └── NoOracle       the environment does not know a best action
├── DataError          rows are missing, unreadable or lack a field
├── ClientError        a chat endpoint failed or answered what cannot be used
│   └── ScriptExhausted  a ScriptedClient was asked for more replies than it has
├── SandboxError       a sandbox failed; the program in it is not to blame
│   └── NoSandbox      no sandbox works on this machine
├── EpisodeError       an episode failed: env, client, tool or time limit
└── NoAction           a policy that was called like a function found no action
"""


class LudicError(Exception):
    """Root of every error that Ludic raises on purpose."""


class ConfigError(LudicError, ValueError):
    """An argument or option has a value that cannot work; the text says which would."""


class EnvError(LudicError):
    """An environment was used against its contract."""


class ContractError(EnvError):
    """An environment breaks a rule that all text environments keep; the text says which."""


class EpisodeOver(EnvError):
    """`step` was called after the end of the episode, or before the first `reset`."""


class NoOracle(EnvError):
    """The environment does not know a best action for its present state."""


class DataError(LudicError):
    """Rows of a dataset are missing, unreadable, or lack a field."""


class ClientError(LudicError):
    """A chat endpoint failed, or answered something that cannot be used."""


class ScriptExhausted(ClientError):
    """A `ScriptedClient` was asked for more replies than it was given."""


class SandboxError(LudicError):
    """A sandbox failed, which says nothing about the program that it was to run."""


class NoSandbox(SandboxError):
    """No sandbox works on this machine; the text says why and what to install."""


class EpisodeError(LudicError):
    """An episode failed: its env, client, a tool, or its time limit."""


class NoAction(LudicError):
    """A policy that was called like a function found no action; the text is its feedback."""
