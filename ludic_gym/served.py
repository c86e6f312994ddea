"""ServedPolicy: the MakePolicy of a model behind a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludic_gym.harness import Harness
from ludic_gym.types import Env, ModelCall, Policy, Sampling

if TYPE_CHECKING:
    from ludic_gym.clients.openai import HostedChatClient
    from ludic_gym.clients.transport import Usage
    from ludic_gym.limits import HttpOptions


@dataclass(frozen=True, slots=True)
class ServedPolicy:
    """A MakePolicy of a model behind a server: plays as the harness says, all with one client."""

    client: HostedChatClient
    harness: Harness

    # A class and not a closure: callers read `usage` and close the connections.
    def __call__(self, env: Env) -> Policy:
        """The policy of one episode."""
        # One client for all episodes: its limit of requests in flight holds for them together.
        return self.harness.policy(self.client, env)

    @property
    def usage(self) -> Usage:
        """Requests and tokens so far, as the server counts them."""
        return self.client.usage

    async def probe(self, sampling: Sampling) -> ModelCall:
        """Send one short request; the served model, by its response.

        Raises ConfigError with the remedy if the server refuses it, see `ludic_gym.clients.probe`.
        """
        from ludic_gym.clients.openai import probe

        return await probe(self.client, sampling)

    async def aclose(self) -> None:
        """Close all connections; the next request opens new ones."""
        await self.client.aclose()


def openai(
    base_url: str | Sequence[str],
    model: str | None = None,
    *,
    harness: Harness | str | None = None,
    api_key_env: str = "OPENAI_API_KEY",
    options: HttpOptions | None = None,
    params: Mapping[str, Any] | None = None,
    extra_body: Mapping[str, Any] | None = None,
) -> ServedPolicy:
    """A MakePolicy for a model behind any server that speaks the OpenAI format.

    base_url: address of the server, such as "http://localhost:8000/v1"; several servers of one
        model share the load.
    model: name of the model on the server; None: the only one it has.
    harness: how the model plays, as of `Harness.of`.
    api_key_env: environment variable that holds the key; no key is sent if it is not set.
    options: time limits, retries and requests in flight.
    params: values of request fields in place of the sampling parameters; None leaves one out.
    extra_body: further fields of each request.
    Raises ConfigError if `base_url` is not an http(s) address.

        policy = openai("http://localhost:8000/v1", harness="think-tag")
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
    return ServedPolicy(client, Harness.of(harness))
