"""Policies by name, for `--policy`, `--model` and `--against`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ludic_gym.errors import ConfigError
from ludic_gym.harness import Harness
from ludic_gym.limits import RequestLimits
from ludic_gym.packages import find_plugins, import_user_module, load_plugin
from ludic_gym.policies.reference import OpponentPolicy, OraclePolicy, RandomPolicy
from ludic_gym.served import ServedPolicy, openai
from ludic_gym.types import MakePolicy

if TYPE_CHECKING:
    from ludic_gym.limits import HttpOptions

# Names of scripted players, not imported: help texts load no environment.
STRENGTHS = ("easy", "medium", "hard")
REFERENCE_POLICIES: dict[str, MakePolicy] = {
    "oracle": OraclePolicy,
    "random": RandomPolicy,
    **{level: partial(OpponentPolicy, name=level) for level in STRENGTHS},
}

# Address, and the environment variable of the key. All have OpenAI's format but the first.
PROVIDERS = {
    "anthropic": ("https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "vllm": ("http://localhost:8000/v1", "VLLM_API_KEY"),
    "ollama": ("http://localhost:11434/v1", "OLLAMA_API_KEY"),
}
# Prefix of models that are loaded into this process.
LOCAL = "hf"


def is_provided(spec: str) -> bool:
    """True for "hf/NAME", "openai/NAME" and the other PROVIDERS, unless there is such a path.

    >>> is_provided("openai/gpt-5"), is_provided("oracle")
    (True, False)
    """
    provider, slash, name = spec.partition("/")
    is_provider = provider == LOCAL or provider in PROVIDERS
    return is_provider and bool(slash and name) and not Path(spec).exists()


def provider_address(provider: str) -> tuple[str, str]:
    """Address and key variable of a provider; NAME_BASE_URL, such as VLLM_BASE_URL, replaces it."""
    url, key = PROVIDERS[provider]
    return os.environ.get(f"{provider.upper()}_BASE_URL", url), key


@asynccontextmanager
async def open_policy(
    spec: str,
    model: str | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    extra_body: Mapping[str, Any] | None = None,
    limits: RequestLimits | None = None,
    chat_args: Mapping[str, Any] | None = None,
    harness: Harness | str | None = None,
) -> AsyncIterator[MakePolicy]:
    """A function that builds the policy, usable while the context lasts.

    spec: "oracle", "random", the level of a scripted player of a game ("easy", "medium" or "hard"),
        the http(s) address of an OpenAI-style server, "openai/NAME" or a model of another of
        PROVIDERS, a run folder, a model of `ludic model`, "hf/FOLDER" or "hf/NAME" for a model of
        the Hugging Face hub, or "module:function", a function that takes the env and returns a
        policy; the module may lie in the current folder.
    model: the server's name for its model; None uses the only one it has.
    params, extra_body: fields of the requests, as of `openai`. limits: of the requests.
    chat_args: arguments of the model's chat template: in requests as vLLM and SGLang have them
        ("chat_template_kwargs"), which ignore an unknown one; in a local model's own template.
    harness: how a model plays, as of `Harness.of`; what it leaves out is as the model was trained.
    Raises ConfigError for any other text, for a run folder that cannot be loaded, for fields of
    requests without a server, for chat arguments without a template that reads them, and for a
    harness without a model.

        async with open_policy("http://localhost:8000/v1") as make_policy:
            policy = make_policy(env)

    >>> import asyncio
    >>> from ludic_gym import bench_tasks, run_bench
    >>> async def success_rate(spec):
    ...     tasks = bench_tasks("ludic/Arithmetic-v0", episodes=20)
    ...     async with open_policy(spec) as make_policy:
    ...         return (await run_bench(tasks, make_policy)).success_rate
    >>> asyncio.run(success_rate("oracle"))
    1.0
    """
    body = dict(extra_body or {})
    options = None if limits is None else limits.options
    if chat_args:
        body["chat_template_kwargs"] = dict(chat_args)
    plays = Harness.of(harness)
    is_scripted = spec in REFERENCE_POLICIES or (":" in spec and not Path(spec).exists())
    if spec.startswith(("http://", "https://")):
        # No token ids are requested: any OpenAI-style server will do, vLLM's included.
        policy = openai(spec, model, harness=plays, params=params, extra_body=body, options=options)
        async with aclosing(policy) as served:
            yield served
    elif is_provided(spec) and not spec.startswith(f"{LOCAL}/"):
        async with aclosing(provided(spec, params, body, options, plays)) as served:
            yield served
    elif params or extra_body:
        raise ConfigError(f"policy {spec!r} sends no requests to set --param or --extra-body of")
    elif chat_args and is_scripted:
        raise ConfigError(f"policy {spec!r} has no chat template to set {sorted(chat_args)} of")
    elif plays != Harness() and is_scripted:
        raise ConfigError(f"policy {spec!r} is no model that a harness could prompt: leave it out")
    elif spec in REFERENCE_POLICIES:
        yield REFERENCE_POLICIES[spec]
    # A path comes before a module: names of folders may have colons.
    elif ":" in spec and not Path(spec).exists():
        yield policy_from_function(spec)
    else:
        yield policy_from_path(spec, chat_args, plays)


@asynccontextmanager
async def open_agent(spec: str, agent: str) -> AsyncIterator[MakePolicy]:
    """A function that builds policies of an agent program with a model of this process.

    spec: a run folder, a model of `ludic model`, or "hf/...". agent: a command, or
    "module:function".
    Raises ConfigError for any other policy, as `policy_from_path` does, and if no installed package
    can run agents.
    """
    is_served = spec.startswith(("http://", "https://")) or is_provided(spec)
    if spec in REFERENCE_POLICIES or (is_served and not spec.startswith(f"{LOCAL}/")):
        raise ConfigError(
            f"--agent plays with a model that this process loads, and the policy is {spec!r}: name "
            "a run folder, ludic-small or hf/NAME"
        )
    loaders = find_plugins("ludic.agents")
    if "local" not in loaders:
        raise ConfigError("nothing installed runs agents: pip install 'ludic-gym[train]'")
    opened: AbstractAsyncContextManager[MakePolicy] = load_plugin(loaders["local"])(spec, agent)
    async with opened as make_policy:
        yield make_policy


def provided(
    spec: str,
    params: Mapping[str, Any] | None = None,
    extra_body: Mapping[str, Any] | None = None,
    options: HttpOptions | None = None,
    harness: Harness | str | None = None,
) -> ServedPolicy:
    """The policy of a model of PROVIDERS, such as "openai/NAME"; the rest as of `openai`."""
    provider, _, name = spec.partition("/")
    url, key = provider_address(provider)
    if provider != "anthropic":
        return openai(
            url,
            name,
            harness=harness,
            api_key_env=key,
            params=params,
            extra_body=extra_body,
            options=options,
        )
    # Imported here: other policies send no requests.
    from ludic_gym.clients.anthropic import AnthropicChatClient

    client = AnthropicChatClient(
        url, name, api_key_env=key, params=params, extra_body=extra_body, options=options
    )
    return ServedPolicy(client, Harness.of(harness))


def policy_from_function(spec: str) -> MakePolicy:
    """The function that "module:function" names, which takes an env and returns a policy.

    Raises ConfigError if the module cannot be imported or has no such function.
    """
    module, _, name = spec.rpartition(":")
    make_policy = getattr(import_user_module(module, spec), name, None)
    if not callable(make_policy):
        raise ConfigError(f"policy {spec!r}: the module {module!r} has no function {name!r}")
    return cast(MakePolicy, make_policy)


def policy_from_path(
    spec: str, chat_args: Mapping[str, Any] | None = None, harness: Harness | None = None
) -> MakePolicy:
    """A function that builds the policy of a run folder of `ludic train`, or of a model's name.

    chat_args: arguments of its chat template. harness: in place of what it was trained with.
    The names are those of plug-ins, such as "ludic-small", and "hf/NAME".
    Raises ConfigError for a path that does not exist, and if no installed package can load it.
    """
    # An entry point, because a policy from a run needs torch, which this package must not import.
    loaders = find_plugins("ludic.policies")
    if spec not in loaders and not is_provided(spec) and not Path(spec).exists():
        raise ConfigError(
            f"policy {spec!r} is neither {', '.join(REFERENCE_POLICIES)}, an http(s) address, "
            "a module:function, a model of `ludic model`, nor a run folder that exists; a hosted "
            f"model is openai/{spec}, or another vendor's"
        )
    loader = loaders.get(spec) or loaders.get("run")
    if loader is None:
        raise ConfigError(
            f"nothing installed can load a policy from {spec!r}: pip install 'ludic-gym[train]'"
        )
    options: dict[str, Any] = {"chat_args": chat_args} if chat_args else {}
    options |= {"harness": harness} if harness is not None and harness != Harness() else {}
    make_policy: MakePolicy = load_plugin(loader)(spec, **options)
    return make_policy
