"""Text environments for language-model agents. Importing this makes the `ludic/` ids known."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import envs_registry

if TYPE_CHECKING:
    from ludic_gym.clients import (
        CachingClient,
        ChatClient,
        OpenAIChatClient,
        ScriptedClient,
        VLLMChatClient,
        VLLMTokenClient,
    )
    from ludic_gym.contexts import (
        Context,
        FullDialog,
        LatestObservation,
        SlidingWindow,
        TruncatedThinkingContext,
    )
    from ludic_gym.errors import (
        ClientError,
        ConfigError,
        ContractError,
        DataError,
        EnvError,
        EpisodeError,
        EpisodeOver,
        LudicError,
        NoAction,
        NoOracle,
        NoSandbox,
        SandboxError,
        ScriptExhausted,
    )
    from ludic_gym.parsers import (
        Parser,
        ParseResult,
        boxed_parser,
        compose_parsers,
        json_parser,
        regex_parser,
        think_prefix_parser,
        xml_tag_parser,
    )
    from ludic_gym.policies import (
        BestOf,
        Budget,
        ChatPolicy,
        HumanPolicy,
        OraclePolicy,
        Parsed,
        RandomPolicy,
        ReAct,
        RejectCutOff,
        ReplayPolicy,
        Retry,
        ScriptedPolicy,
        ThinkingBudget,
        ToolUse,
    )
    from ludic_gym.rollout import grouped, run_episode, run_episodes, run_match, run_matches
    from ludic_gym.tools import Tool, as_tool
    from ludic_gym.types import (
        Completion,
        Decision,
        Env,
        Episode,
        MakePolicy,
        Message,
        Policy,
        Rollout,
        Sampling,
        Step,
        Task,
        ToolCall,
    )

__all__ = [
    "BestOf",
    "Budget",
    "CachingClient",
    "ChatClient",
    "ChatPolicy",
    "ClientError",
    "Completion",
    "ConfigError",
    "Context",
    "ContractError",
    "DataError",
    "Decision",
    "Env",
    "EnvError",
    "Episode",
    "EpisodeError",
    "EpisodeOver",
    "FullDialog",
    "HumanPolicy",
    "LatestObservation",
    "LudicError",
    "MakePolicy",
    "Message",
    "NoAction",
    "NoOracle",
    "NoSandbox",
    "OpenAIChatClient",
    "OraclePolicy",
    "ParseResult",
    "Parsed",
    "Parser",
    "Policy",
    "RandomPolicy",
    "ReAct",
    "RejectCutOff",
    "ReplayPolicy",
    "Retry",
    "Rollout",
    "Sampling",
    "SandboxError",
    "ScriptExhausted",
    "ScriptedClient",
    "ScriptedPolicy",
    "SlidingWindow",
    "Step",
    "Task",
    "ThinkingBudget",
    "Tool",
    "ToolCall",
    "ToolUse",
    "TruncatedThinkingContext",
    "VLLMChatClient",
    "VLLMTokenClient",
    "as_tool",
    "boxed_parser",
    "compose_parsers",
    "grouped",
    "json_parser",
    "regex_parser",
    "run_episode",
    "run_episodes",
    "run_match",
    "run_matches",
    "think_prefix_parser",
    "xml_tag_parser",
]

_HOMES = ("types", "errors", "parsers", "contexts", "tools", "policies", "clients", "rollout")

envs_registry.register_envs()

if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    import_module("ludic_gym.notebook").load_ipython_extension(_shell)


# Names are looked up when they are first used: whoever only makes environments waits for no more.
# A type checker must not see how, or it would believe in every misspelt name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        modules = (import_module(f"{__name__}.{home}") for home in _HOMES)
        value = next(vars(module)[name] for module in modules if name in vars(module))
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return list(__all__)
