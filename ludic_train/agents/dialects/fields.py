"""Fields that several dialects share: reading them, with one clear error for each fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from ludic_gym.errors import ConfigError
from ludic_gym.types import Sampling, ToolSchema

T = TypeVar("T")
Positive = Annotated[int, Meta(ge=1, lt=2**31)]
Temperature = Annotated[float, Meta(ge=0, le=100)]
Share = Annotated[float, Meta(gt=0, le=1)]
TopK = Annotated[int, Meta(ge=-1, lt=2**31)]
# Fields that change what is sampled in a way that no engine here offers, and their neutral values.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "min_tokens", "top_logprobs"), (0,)),
    **dict.fromkeys(("repetition_penalty", "n"), (1,)),
    **dict.fromkeys(("ignore_eos", "background"), (False,)),
    **dict.fromkeys(("conversation", "prompt", "structured_outputs"), ()),
    "logit_bias": ({},),
    "modalities": (["text"],),
}


class SamplingBody(msgspec.Struct, kw_only=True):
    """Sampling parameters of chat completions and of vLLM's generate route."""

    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: TopK | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: Positive | None = None
    stop: str | list[str] | None = None
    # The range of torch's seeds.
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None

    def sampling(self) -> Sampling:
        """The parameters, without a limit of tokens."""
        return sampling_of(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            stop=self.stop,
            seed=self.seed,
        )


def sampling_of(
    *,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    stop: str | list[str] | None = None,
    seed: int | None = None,
) -> Sampling:
    """Parameters as clients send them; None where they leave one out.

    Raises ConfigError for an empty stop string, which every text contains.
    """
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if "" in stops:
        raise ConfigError("stop has an empty string, which every text contains")
    return Sampling(
        temperature=1.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        # vLLM turns it off by -1.
        top_k=max(top_k or 0, 0),
        min_p=min_p or 0.0,
        stop=stops,
        seed=seed,
    )


def body_of(data: bytes, kind: type[T]) -> T:
    """The JSON of a request as `kind`. Raises ConfigError as `fields_of`."""
    try:
        content = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ConfigError(f"the request cannot be read: {error}") from error
    return fields_of(content, kind)


def fields_of(content: Any, kind: type[T]) -> T:  # noqa: ANN401 - JSON
    """An object of JSON as `kind`. Unknown fields, such as `metadata`, have no effect.

    Raises ConfigError for anything else, and for fields of NEUTRAL whose value cannot be followed.
    """
    try:
        fields = msgspec.convert(content, kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"the request cannot be read: {error}") from error
    for name in NEUTRAL.keys() & content.keys():
        # Refused and not ignored: samples of another distribution would have wrong log-probs.
        if content[name] is not None and content[name] not in NEUTRAL[name]:
            raise ConfigError(
                f"{name}={content[name]!r:.200} is not offered: tokens are sampled by temperature, "
                "top_p, top_k, min_p, stop and seed, because log-probs must be those of the policy"
            )
    return fields


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


def require_text_format(form: Any) -> None:  # noqa: ANN401 - JSON
    """Raise ConfigError for a format of replies other than text."""
    if form is not None and form != {"type": "text"}:
        raise ConfigError(
            f"the format {form!r:.200} is not offered: log-probs of constrained replies are not "
            "those of the policy; leave it out, and parse the text"
        )


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
