"""Policies of a model behind a server: `openai`, and the MakePolicy that it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludic_gym.contexts import Context, FullDialog
from ludic_gym.parsers import Parser
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.parsed import Parsed
from ludic_gym.types import Env, ModelCall, Policy, Sampling

if TYPE_CHECKING:
    from ludic_gym.clients.openai import HostedChatClient
    from ludic_gym.clients.transport import HttpOptions
    from ludic_gym.clients.usage import Usage


@dataclass(frozen=True, slots=True)
class ServedPolicy:
    """A MakePolicy: a ChatPolicy per episode, all of them with one client.

    parser: finds the action in a reply; None: the reply is the action.
    system_prompt: see `ChatPolicy`.
    context: makes the context of an episode.
    """

    client: HostedChatClient
    parser: Parser | None = None
    system_prompt: str | None = None
    context: Callable[[], Context] = FullDialog

    # A class and not a closure: callers read `usage` and close the connections.
    def __call__(self, env: Env) -> Policy:
        """The policy of one episode."""
        # One client for all episodes: its limit of requests in flight holds for them together.
        chat = ChatPolicy(self.client, self.context(), self.system_prompt)
        return chat if self.parser is None else Parsed(chat, self.parser)

    @property
    def usage(self) -> Usage:
        """Requests and tokens so far, as the server counts them."""
        return self.client.usage

    async def probe(self, sampling: Sampling) -> ModelCall:
        """Send one short request; the served model, by its response.

        Raises ConfigError with the remedy if the server refuses it, see `ludic_gym.clients.probe`.
        """
        from ludic_gym.clients.probe import probe

        return await probe(self.client, sampling)

    async def aclose(self) -> None:
        """Close all connections; the next request opens new ones."""
        await self.client.aclose()


def openai(
    base_url: str | Sequence[str],
    model: str | None = None,
    *,
    parser: Parser | None = None,
    system_prompt: str | None = None,
    context: Callable[[], Context] = FullDialog,
    api_key_env: str = "OPENAI_API_KEY",
    options: HttpOptions | None = None,
    params: Mapping[str, Any] | None = None,
    extra_body: Mapping[str, Any] | None = None,
) -> ServedPolicy:
    """A MakePolicy for a model behind any server that speaks the OpenAI format.

    base_url: address of the server, such as "http://localhost:8000/v1"; several servers of one
        model share the load.
    model: name of the model on the server; None: the only one it has.
    parser: finds the action in a reply, such as `xml_tag_parser("answer")`; None: the reply is the
        action.
    system_prompt: None for the environment's suggestion, "" for none.
    context: makes the context of an episode, such as `LatestObservation`.
    api_key_env: environment variable that holds the key; no key is sent if it is not set.
    options: time limits, retries and requests in flight.
    params: values of request fields in place of the sampling parameters; None leaves one out.
    extra_body: further fields of each request.
    Raises ConfigError if `base_url` is not an http(s) address.

        policy = openai("http://localhost:8000/v1", parser=xml_tag_parser("answer"))
        evaluate("ludic/GSM8K-v0", policy, split="test", sampling=Sampling(temperature=0))
    """
    # Imported here: `ludic bench` with a reference policy sends no requests.
    from ludic_gym.clients.openai import OpenAIChatClient

    client = OpenAIChatClient(
        base_url,
        model,
        api_key_env=api_key_env,
        options=options,
        params=params,
        extra_body=extra_body,
    )
    return ServedPolicy(client, parser, system_prompt, context)
