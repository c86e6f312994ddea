"""Prompts of a trained model, kept beside it, so that it is prompted as it was in training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Literal

from ludic_gym.contexts import Context, FullDialog, LatestObservation
from ludic_gym.errors import ConfigError
from ludic_gym.parsers import named_parser
from ludic_gym.policies.chat import CLOSING, ChatPolicy, ThinkingBudget
from ludic_gym.policies.wrappers import Parsed
from ludic_gym.types import (
    ChatClient,
    Completion,
    Env,
    MakePolicy,
    Message,
    Policy,
    Sampling,
    ToolSchema,
)
from ludic_train.errors import ModelNotFound

SPEC_FILE = "policy.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """Prompt settings of a model, so that it is prompted as it was in training.

    Attributes:
        context: "full" prompts with the whole dialog, "latest" with the newest observation alone.
        system_prompt: None takes the env's suggestion, "" takes none.
        parser: Part of a reply that is the action, as `named_parser` takes it, such as
            "xml:answer"; None: the whole reply.
        max_tokens: Longest completion, whatever the request; None leaves it to the request.
        think_tokens: Tokens after which a thought is ended by `think_closing`, as `ThinkingBudget`
            does; None lets it go on.
        think_closing: Text that ends a thought.
    """

    context: Literal["full", "latest"] = "full"
    system_prompt: str | None = None
    parser: str | None = None
    max_tokens: int | None = None
    think_tokens: int | None = None
    think_closing: str = CLOSING

    def __post_init__(self) -> None:
        if self.context not in ("full", "latest"):
            raise ConfigError(f'context={self.context!r} must be "full" or "latest"')
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(f"max_tokens={self.max_tokens} must be at least 1")
        if self.parser is not None:
            named_parser(self.parser)


def write_policy_spec(folder: str | Path, spec: PolicySpec) -> None:
    """Write a run's policy.json.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_policy_spec(Path(folder), PolicySpec(context="latest", parser="xml:answer"))
    ...     read_policy_spec(Path(folder)).parser
    'xml:answer'
    """
    path = Path(folder) / SPEC_FILE
    path.write_text(json.dumps(asdict(spec), indent=2) + "\n", encoding="utf-8")


def read_policy_spec(folder: str | Path) -> PolicySpec:
    """The spec that `write_policy_spec` wrote. Raises ConfigError for any other file."""
    path, known = Path(folder) / SPEC_FILE, [field.name for field in fields(PolicySpec)]
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is no JSON: {error}") from error
    # An unknown field may change the prompts, so it is refused and not ignored.
    if not isinstance(values, dict) or not values.keys() <= set(known):
        raise ConfigError(f"{path} must be an object with {', '.join(known)}, got {values!r}")
    return PolicySpec(**values)


def policies(client: ChatClient, spec: PolicySpec) -> MakePolicy:
    """Factory of policies that prompt `client` as `spec` says."""
    # A policy does not choose the sampling, so the limit has to sit in the client.
    limited = client if spec.max_tokens is None else _Brief(client, spec.max_tokens)

    def make_policy(env: Env) -> Policy:
        chat = ChatPolicy(limited, new_context(spec), spec.system_prompt)
        policy = (
            ThinkingBudget(chat, spec.think_tokens, spec.think_closing)
            if spec.think_tokens
            else chat
        )
        return Parsed(policy, named_parser(spec.parser)) if spec.parser else policy

    return make_policy


def new_context(spec: PolicySpec) -> Context:
    """An empty context of the spec's kind."""
    return FullDialog() if spec.context == "full" else LatestObservation()


def model_and_spec(path: Path) -> tuple[Path, PolicySpec]:
    """Folder of the model and its prompt settings, of a run folder or a model's own.

    Raises ModelNotFound for a folder that is neither.
    """
    # Without its spec, the model of a run would be prompted in another way than it was trained.
    if (path / "model").is_dir():
        if not (path / SPEC_FILE).is_file():
            raise ModelNotFound(f"{str(path)!r} has a model/ but no {SPEC_FILE}")
        return path / "model", read_policy_spec(path)
    if any((path / name).is_file() for name in ("config.json", "adapter_config.json")):
        return path, PolicySpec()
    raise ModelNotFound(
        f"{str(path)!r} is no run folder, with model/ and {SPEC_FILE}, nor a model in Hugging Face "
        "format, with config.json"
    )


class _Brief:
    """Chat client that limits completions to `max_tokens`."""

    def __init__(self, client: ChatClient, max_tokens: int) -> None:
        self._client, self._max_tokens = client, max_tokens

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        # Longer ones were cut off in training, so the model never learned to end them.
        if sampling.max_tokens > self._max_tokens:
            sampling = replace(sampling, max_tokens=self._max_tokens)
        return await self._client.complete(messages, sampling, tools)
