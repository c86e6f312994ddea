"""Fields that several dialects share: reading them, with one clear error for each fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from ludic_gym.errors import ConfigError
from ludic_gym.types import ToolSchema

T = TypeVar("T")
Positive = Annotated[int, Meta(ge=1, lt=2**31)]
Temperature = Annotated[float, Meta(ge=0, le=100)]
Share = Annotated[float, Meta(gt=0, le=1)]
Floor = Annotated[float, Meta(ge=0, le=1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Choices = Annotated[int, Meta(ge=1, le=64)]
TopK = Annotated[int, Meta(ge=-1, lt=2**31)]
# Fields that change what is sampled in a way that no engine here offers, and their neutral values.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "min_tokens"), (0,)),
    **dict.fromkeys(("repetition_penalty", "best_of"), (1,)),
    **dict.fromkeys(("echo", "ignore_eos", "background"), (False,)),
    **dict.fromkeys(("suffix", "conversation", "prompt"), ("",)),
    **dict.fromkeys(("logit_bias",), ({},)),
    **dict.fromkeys(("top_logprobs",), (0,)),
    "modalities": (["text"],),
}
# Messages and tools whose reading is kept, and their longest JSON in bytes: some megabytes.
REMEMBERED, REMEMBERED_BYTES = 4096, 4096

# Names of NEUTRAL that chat completions and completions know.
SAMPLING = (
    "presence_penalty", "frequency_penalty", "repetition_penalty", "min_tokens", "ignore_eos",
    "logit_bias",
)  # fmt: skip


class SamplingBody(msgspec.Struct, kw_only=True):
    """Fields that chat completions and completions share."""

    model: str | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: TopK | None = None
    min_p: Floor | None = None
    max_tokens: Positive | None = None
    stop: str | list[str] | None = None
    seed: Seed | None = None
    n: Choices | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    return_token_ids: bool | None = None

    def shared(self) -> dict[str, Any]:
        """Arguments of a `Request`; `max_tokens`, whose default differs, is not among them."""
        return {
            "model": self.model or "",
            "temperature": self.temperature,
            "top_p": self.top_p,
            # -1 turns it off at vLLM.
            "top_k": None if self.top_k is None else max(self.top_k, 0),
            "min_p": self.min_p,
            "stop": stops(self.stop),
            "seed": self.seed,
            "n": self.n or 1,
            "stream": bool(self.stream),
            "token_ids": bool(self.return_token_ids),
            "usage": bool((self.stream_options or {}).get("include_usage")),
        }


def body_of(data: bytes, kind: type[T], refused: Sequence[str]) -> T:
    """The request's JSON as `kind`. Unknown fields, such as `metadata`, have no effect.

    refused: names of NEUTRAL that the dialect knows.
    Raises ConfigError for anything else, and for fields whose value cannot be followed.
    """
    struct: Any = kind
    body: T = _decoded(data, _with_refused(struct, *refused))
    for name in refused:
        value = getattr(body, name)
        # Refused and not ignored: samples of another distribution would have wrong log-probs.
        if value is not None and value not in NEUTRAL[name]:
            raise ConfigError(f"{name}={value!r:.200} is not offered: {_REASON}")
    return body


def remembered(read: Callable[[Any], T]) -> Callable[[msgspec.Raw], T]:
    """`read` for a part of a body, given the part's JSON. Nothing may change its results.

    A client sends its whole history with each request, so that the same parts come again.
    Raises ConfigError as `body_of` does.
    """

    def found(data: bytes) -> T:
        return read(_decoded(data, Any))

    kept = lru_cache(REMEMBERED)(found)

    def of_raw(raw: msgspec.Raw) -> T:
        data = bytes(raw)
        return kept(data) if len(data) <= REMEMBERED_BYTES else found(data)

    return of_raw


@lru_cache
def _with_refused(kind: Any, *names: str) -> type[msgspec.Struct]:  # noqa: ANN401 - a Struct
    """The body with further fields of these names, for one reading of both."""
    further = [(name, Any, None) for name in names]
    return msgspec.defstruct(kind.__name__, further, bases=(kind,), kw_only=True)


def _decoded(data: bytes, kind: Any) -> Any:  # noqa: ANN401 - JSON
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ConfigError(f"the request cannot be read: {error}") from error


_REASON = (
    "tokens are sampled by temperature, top_p, top_k, min_p, stop and seed, so that their "
    "log-probs are those of the policy"
)


def text_of(content: object, kinds: Sequence[str] = ("text",)) -> str:
    """Text of a message's content: a string, or parts of these kinds.

    Raises ConfigError for images and other parts that are no text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ConfigError(f"content is text or a list of parts, got {content!r:.200}")
    return "".join(_part(part, kinds) for part in content)


def _part(part: object, kinds: Sequence[str]) -> str:
    match part:
        case str():
            return part
        case {"type": str(kind), "text": str(text)} if kind in kinds:
            return text
        case {"type": "refusal", "refusal": str(text)}:
            return text
    raise ConfigError(f"a part of a message is {part!r:.200}, and only text can be read")


def schema_of(form: Any) -> dict[str, Any] | None:  # noqa: ANN401 - JSON
    """JSON schema of a format of replies, None for text. Raises ConfigError for other formats."""
    match form:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
        case {"type": "json_schema", "schema": dict(schema)}:
            return schema
    raise ConfigError(f"a format is text, json_object or a json_schema, got {form!r:.200}")


def stops(value: str | list[str] | None) -> tuple[str, ...]:
    """Stop strings. Raises ConfigError for an empty one, which every text contains."""
    found = (value,) if isinstance(value, str) else tuple(value or ())
    if "" in found:
        raise ConfigError("stop has an empty string, which every text contains")
    return found


def tool_of(function: object) -> ToolSchema:
    """A tool by its name, description and JSON schema. Raises ConfigError for anything else."""
    match function:
        case {"name": str(name), **rest} if name:
            parameters = rest.get("parameters") or {"type": "object", "properties": {}}
            description = rest.get("description") or ""
            if isinstance(parameters, dict) and isinstance(description, str):
                made = {"name": name, "description": description, "parameters": parameters}
                return {"type": "function", "function": made}
    raise ConfigError(
        f"a tool is a function with a name, a description and JSON-schema parameters, got "
        f"{function!r:.200}"
    )


def choice_of(raw: object) -> str:
    """The tool choice of OpenAI's dialects: auto, none, required, or the name of a function.

    Raises ConfigError for anything else.
    """
    match raw:
        case None:
            return "auto"
        case str():
            return raw
        # Chat completions have the name in a further object.
        case {"function": {"name": str(name)}}:
            return name
        case {"type": "function", "name": str(name)}:
            return name
    raise ConfigError(f"tool_choice is none, auto, required or a function, got {raw!r:.200}")


def required(choice: str, tools: Sequence[ToolSchema]) -> str:
    """The tool choice. Raises ConfigError for a function that is not offered."""
    names = [tool["function"]["name"] for tool in tools]
    if choice not in ("auto", "none", "required", *names):
        raise ConfigError(f"tool_choice names {choice!r:.100}, and the tools are {names!r:.200}")
    # A reply that must call something could not be begun.
    if choice not in ("auto", "none") and not tools:
        raise ConfigError(f"tool_choice={choice!r:.100} without tools")
    return choice


def usage_of(prompt: int, sampled: int) -> dict[str, int]:
    """Usage in the format of chat completions.

    prompt: its tokens, once for all choices. sampled: tokens of all choices together.
    """
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}
