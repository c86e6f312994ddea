"""`lg.model`: what plays, by its name, for Python, `--model`, `--policy` and `--against`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from ludic_gym.errors import ConfigError
from ludic_gym.harness import Harness
from ludic_gym.limits import RequestLimits
from ludic_gym.packages import find_plugins, import_user_module, load_plugin
from ludic_gym.policies.reference import OpponentPolicy, OraclePolicy, RandomPolicy
from ludic_gym.types import Env, MakePolicy, ModelCall, Policy, Sampling

if TYPE_CHECKING:
    from ludic_gym.clients.attempts import Usage
    from ludic_gym.clients.openai import HostedChatClient

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
    "google": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "vllm": ("http://localhost:8000/v1", "VLLM_API_KEY"),
    "ollama": ("http://localhost:11434/v1", "OLLAMA_API_KEY"),
}
# Prefix of models that are loaded into this process.
LOCAL = "hf"


@dataclass(frozen=True, slots=True)
class Model:
    """A MakePolicy that `model` has found by its name.

    make: makes the policy of an episode. client: the only client of all episodes, so that its limit
        of requests holds for them together; None for what is not behind a server.

        async with lg.model("openai/gpt-5") as model:
            result = await lg.run_bench(tasks, model)
            print(model.usage)
    """

    make: MakePolicy
    client: HostedChatClient | None = None

    def __call__(self, env: Env) -> Policy:
        """The policy of one episode."""
        return self.make(env)

    @property
    def usage(self) -> Usage | None:
        """Requests and tokens so far, as the server counts them; None without a server."""
        return None if self.client is None else self.client.usage

    @property
    def refusals(self) -> list[str]:
        """Lines on the fields of requests that the server has refused, and what is sent instead."""
        renamed = {} if self.client is None else self.client.renamed
        return [
            f"the server refuses {name!r}: "
            + ("it is left out" if new is None else f"it is sent as {new!r}")
            for name, new in renamed.items()
        ]

    async def probe(self, sampling: Sampling) -> ModelCall | None:
        """Send one short request; the served model, by its response. None without a server.

        Raises ConfigError with the remedy if the server refuses it, see `ludic_gym.clients.probe`.
        """
        if self.client is None:
            return None
        # Imported here: other policies send no requests.
        from ludic_gym.clients.probe import probe

        return await probe(self.client, sampling)

    async def aclose(self) -> None:
        """Close all connections; the next request opens new ones."""
        if self.client is not None:
            await self.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


def model(
    spec: str,
    name: str | None = None,
    *,
    harness: Harness | str | None = None,
    api_key_env: str | None = None,
    params: Mapping[str, Any] | None = None,
    extra_body: Mapping[str, Any] | None = None,
    limits: RequestLimits | None = None,
    chat_args: Mapping[str, Any] | None = None,
) -> Model:
    """The player of this name, as a MakePolicy.

    spec: "openai/NAME" or a model of another of PROVIDERS, the http(s) address of an OpenAI-style
        server, a run folder, a model of `ludic model`, "hf/FOLDER" or "hf/NAME" for a model of the
        Hugging Face hub, "oracle", "random", the level of a scripted player of a game ("easy",
        "medium" or "hard"), or "module:function", a function that takes the env and returns a
        policy; the module may lie in the current folder.
    name: the model's name at an address; None: the only one it has.
    harness: how a model plays, as of `Harness.of`; what it leaves out is as the model was trained.
    api_key_env: environment variable of the server's key; None: the provider's, OPENAI_API_KEY for
        an address. No key is sent if it is not set.
    params: values of request fields in place of the sampling parameters; None leaves one out.
    extra_body: further fields of each request. limits: of the requests.
    chat_args: arguments of the model's chat template: in requests as vLLM and SGLang have them
        ("chat_template_kwargs"), which ignore an unknown one; in a local model's own template.
    Raises ConfigError for any other text, and for arguments that do not fit what it names.

        model = lg.model("http://localhost:8000/v1", harness="think-tag")
        lg.evaluate("ludic/GSM8K-v0", model, split="test", sampling=lg.Sampling(temperature=0))

    >>> from ludic_gym import evaluate
    >>> evaluate("ludic/Arithmetic-v0", model("oracle"), episodes=20, progress=False).success_rate
    1.0
    """
    plays = Harness.of(harness)
    is_address = spec.startswith(("http://", "https://"))
    if name is not None and not is_address:
        raise ConfigError(f"{spec!r} names what plays: {name!r} is a name for a server's address")
    if is_address or is_hosted(spec):
        body = dict(extra_body or {})
        if chat_args:
            body["chat_template_kwargs"] = dict(chat_args)
        client = _client(spec, name, api_key_env, limits or RequestLimits(), params, body)
        return Model(plays.make_policy(client), client)
    if params or extra_body or api_key_env:
        raise ConfigError(f"policy {spec!r} sends no requests to set fields or a key of")
    # A path comes before a module: names of folders may have colons.
    is_function = ":" in spec and not Path(spec).exists()
    if spec not in REFERENCE_POLICIES and not is_function:
        return Model(_policy_from_path(spec, chat_args, plays))
    if chat_args:
        raise ConfigError(f"policy {spec!r} has no chat template to set {sorted(chat_args)} of")
    if plays != Harness():
        raise ConfigError(f"policy {spec!r} is no model that a harness could prompt: leave it out")
    return Model(_policy_from_function(spec) if is_function else REFERENCE_POLICIES[spec])


def is_provided(spec: str) -> bool:
    """True for "hf/NAME", "openai/NAME" and the other PROVIDERS, unless there is such a path.

    >>> is_provided("openai/gpt-5"), is_provided("oracle")
    (True, False)
    """
    provider, slash, name = spec.partition("/")
    is_provider = provider == LOCAL or provider in PROVIDERS
    return is_provider and bool(slash and name) and not Path(spec).exists()


def is_hosted(spec: str) -> bool:
    """True for the address of a server, and for a model of PROVIDERS.

    >>> is_hosted("openai/gpt-5"), is_hosted("http://localhost:8000/v1"), is_hosted("hf/NAME")
    (True, True, False)
    """
    is_address = spec.startswith(("http://", "https://"))
    return is_address or (is_provided(spec) and not spec.startswith(f"{LOCAL}/"))


def provider_address(provider: str) -> tuple[str, str]:
    """Address and key variable of a provider; NAME_BASE_URL, such as VLLM_BASE_URL, replaces it."""
    url, key = PROVIDERS[provider]
    return os.environ.get(f"{provider.upper()}_BASE_URL", url), key


def _client(
    spec: str,
    name: str | None,
    api_key_env: str | None,
    limits: RequestLimits,
    params: Mapping[str, Any] | None,
    extra_body: Mapping[str, Any],
) -> HostedChatClient:
    """The client of an address, or of a model of PROVIDERS."""
    # Imported here: other policies send no requests.
    from ludic_gym.clients.anthropic import AnthropicChatClient
    from ludic_gym.clients.openai import OpenAIChatClient

    provider, url, key = "", spec, "OPENAI_API_KEY"
    if is_provided(spec):
        provider, _, name = spec.partition("/")
        url, key = provider_address(provider)
    make = AnthropicChatClient if provider == "anthropic" else OpenAIChatClient
    return make(
        url,
        name,
        api_key_env=api_key_env or key,
        options=limits.options,
        params=params,
        extra_body=extra_body,
    )


@asynccontextmanager
async def open_agent(spec: str, agent: str) -> AsyncIterator[MakePolicy]:
    """A function that builds policies of an agent program with a model of this process.

    spec: a run folder, a model of `ludic model`, or "hf/...". agent: a command, or
    "module:function".
    Raises ConfigError for any other policy, as `model` does, and if no installed package can run
    agents.
    """
    if spec in REFERENCE_POLICIES or is_hosted(spec):
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


def _policy_from_function(spec: str) -> MakePolicy:
    """The function that "module:function" names, which takes an env and returns a policy.

    Raises ConfigError if the module cannot be imported or has no such function.
    """
    module, _, name = spec.rpartition(":")
    make_policy = getattr(import_user_module(module, spec), name, None)
    if not callable(make_policy):
        raise ConfigError(f"policy {spec!r}: the module {module!r} has no function {name!r}")
    return cast(MakePolicy, make_policy)


def _policy_from_path(
    spec: str, chat_args: Mapping[str, Any] | None, harness: Harness
) -> MakePolicy:
    """A function that builds the policy of a run folder of `ludic train`, or of a model's name.

    chat_args: arguments of its chat template. harness: in place of what it was trained with.
    The names are those of plug-ins, such as "ludic-small", and "hf/NAME".
    Raises ConfigError for a path that does not exist, and if no installed package can load it.
    """
    # An entry point, because a policy from a run needs torch, which this package must not import.
    loaders = find_plugins("ludic.policies")
    if spec not in loaders and not is_provided(spec) and not Path(spec).exists():
        vendor = "openrouter" if "/" in spec else "openai"
        raise ConfigError(
            f"{spec!r} names nothing that plays: write {vendor}/{spec} (or another vendor before "
            f"it), or an address and this name (--policy http://HOST:PORT/v1 --model {spec}). "
            f"Others are {', '.join(REFERENCE_POLICIES)}, ludic-small, module:function, hf/NAME "
            "and a run folder that exists"
        )
    loader = loaders.get(spec) or loaders.get("run")
    if loader is None:
        raise ConfigError(
            f"nothing installed can load a policy from {spec!r}: pip install 'ludic-gym[train]'"
        )
    options: dict[str, Any] = {"chat_args": chat_args} if chat_args else {}
    options |= {"harness": harness} if harness != Harness() else {}
    make_policy: MakePolicy = load_plugin(loader)(spec, **options)
    return make_policy
