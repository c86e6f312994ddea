"""Requests to the local server, with the field names of vLLM and OpenAI.

Unknown fields are errors, so that a misspelled parameter is never ignored. Fields that the engine
lacks are accepted with their neutral value only (NEUTRAL).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from ludic_gym.clients.responses import excerpt
from ludic_gym.errors import ConfigError
from ludic_gym.types import Sampling

T = TypeVar("T")
Share = Annotated[float, Meta(gt=0, le=1)]
# The range of torch's seeds.
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# The largest number that vLLM and OpenAI allow.
Top = Annotated[int, Meta(ge=0, le=20)]
Positive = Annotated[int, Meta(ge=1)]
# Fields without an effect here, and the values that request the engine's only behaviour.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "min_tokens"), (0,)),
    **dict.fromkeys(("repetition_penalty", "best_of"), (1,)),
    **dict.fromkeys(("stream", "echo", "ignore_eos", "include_stop_str_in_output"), (False,)),
    **dict.fromkeys(("skip_special_tokens", "spaces_between_special_tokens"), (True,)),
    "detokenize": (True,),
    "logit_bias": ({},),
    "stop_token_ids": ([],),
    "stream_options": (),
    "suffix": ("",),
    "output_mode": ("text", "tokens"),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
}


class SamplingFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Sampling parameters; None takes the default.

    temperature: 1 by default; 0 is greedy. top_p: share of the probability to sample from.
    top_k: number of tokens to sample from, -1 or 0 for all. min_p: least share of the likeliest
    token's probability.
    max_tokens: of each completion. stop: texts that end one. n: number of completions.
    """

    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Meta(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: Positive | None = None
    stop: str | list[str] | None = None
    seed: Seed | None = None
    n: Annotated[int, Meta(ge=1, le=64)] | None = None

    def samplings(self, max_tokens: int) -> list[Sampling]:
        """One sampling for each of the `n` choices; a seed is followed by the next integers.

        max_tokens: limit in tokens where the request has none.
        """
        sampling = Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=self.top_p or 1.0,
            top_k=max(self.top_k or 0, 0),
            min_p=self.min_p or 0.0,
            max_tokens=self.max_tokens or max_tokens,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()),
            seed=self.seed,
        )
        count, seed = self.n or 1, self.seed
        if seed is None:
            return [sampling] * count
        # Equal seeds would make all choices equal.
        return [replace(sampling, seed=seed + i) for i in range(count)]


class Params(SamplingFields, kw_only=True):
    """`sampling_params` of /inference/v1/generate. logprobs: number of the likeliest tokens."""

    logprobs: Top | None = None


class Generate(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Request of /inference/v1/generate.

    token_ids: the prompt. model: None takes the served one. request_id: returned as it is.
    """

    token_ids: list[int]
    sampling_params: Params = msgspec.field(default_factory=Params)
    model: str | None = None
    request_id: str | None = None


class _OpenAI(SamplingFields, kw_only=True):
    """Fields of both of OpenAI's routes; `user` and those after it have no effect."""

    model: str | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    user: Any = None
    metadata: Any = None
    store: Any = None
    request_id: Any = None


class Complete(_OpenAI, kw_only=True):
    """Request of /v1/completions.

    prompt: text or token ids. logprobs: number of the likeliest tokens; None for no log-probs.
    prompt_logprobs: as `logprobs`, for the tokens of the prompt.
    """

    prompt: str | list[int]
    logprobs: Top | None = None
    prompt_logprobs: Top | None = None


class Chat(_OpenAI, kw_only=True):
    """Request of /v1/chat/completions.

    logprobs: True for log-probs of the sampled tokens. top_logprobs: number of the likeliest.
    continue_final_message: True continues an assistant's last message.
    """

    messages: list[dict[str, Any]]
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: Top | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    tools: list[Any] | None = None


class UpdateInfo(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """All params. folder: holds them in *.safetensors. abort: True ends the session instead."""

    folder: str = ""
    abort: bool = False


class Update(msgspec.Struct, kw_only=True):
    """Request of /update_weights."""

    update_info: UpdateInfo


class Finish(msgspec.Struct, kw_only=True):
    """Request of /finish_weight_update; None keeps the version's name."""

    weight_version: str | None = None


class NewVersion(msgspec.Struct, kw_only=True):
    """Request of /update_weight_version."""

    new_version: str


class Call(msgspec.Struct, kw_only=True):
    """Request of /collective_rpc. args: ignored; kwargs: of the method."""

    method: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


def read(raw: bytes, kind: type[T]) -> T:
    """The request, checked against its schema.

    raw: JSON; an empty body counts as {}. kind: the struct to make of it.
    Raises ConfigError with the error, its place, and the value found there.
    """
    try:
        content = msgspec.json.decode(raw or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = excerpt(raw.decode(errors="replace"))
        raise ConfigError(f"the body is no JSON that can be read ({error}): {text}") from error
    # Clients send many fields with their defaults. These are dropped before the types are checked,
    # so that the structs have the fields of this engine only and still refuse misspelled ones.
    content = _without_neutral(content)
    if isinstance(content, dict) and "sampling_params" in content:
        content["sampling_params"] = _without_neutral(content["sampling_params"])
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        found = excerpt(repr(_value_at(str(error), content)))
        raise ConfigError(f"{error}, where the body has {found}") from error


def _without_neutral(content: Any) -> Any:  # noqa: ANN401 - any JSON
    """The object without fields of NEUTRAL. Raises ConfigError for other values of these."""
    if not isinstance(content, dict):
        return content
    for name, neutral in NEUTRAL.items():
        # None is what OpenAI's clients send for a field that the user left out.
        if content.get(name) is not None and content[name] not in neutral:
            raise ConfigError(
                f"{name}={excerpt(repr(content[name]))} is not offered: the local engine samples "
                "by temperature, top_p, top_k, min_p, stop and seed, and sends whole responses; "
                "serve with vLLM for more"
            )
    return {name: value for name, value in content.items() if name not in NEUTRAL}


def _value_at(error: str, content: Any) -> object:  # noqa: ANN401 - any JSON
    """The value that an error is about, as far as it is found; the error ends in "`$.a.b[0]`"."""
    for key in filter(None, error.partition("`$.")[2].rstrip("`").partition("[")[0].split(".")):
        if not isinstance(content, dict) or key not in content:
            break
        content = content[key]
    return content
