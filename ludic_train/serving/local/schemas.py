"""What the routes that sample are asked for, as vLLM and OpenAI name it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from ludic_gym.clients.transport import excerpt
from ludic_gym.errors import ConfigError
from ludic_gym.types import Sampling
from ludic_train.errors import PublishError
from ludic_vllm.wire import ParamInfo

Share = Annotated[float, Meta(gt=0, le=1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Top = Annotated[int, Meta(ge=0, le=20)]
# Fields that this engine has no use for; these values ask for what it does anyway.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "top_k": (0, -1),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "min_tokens": (0,),
    "best_of": (1,),
    "ignore_eos": (False,),
    "stop_token_ids": ([],),
    "stream": (False,),
    "stream_options": (),
    "echo": (False,),
    "suffix": ("",),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "include_stop_str_in_output": (False,),
    "detokenize": (True,),
    "output_mode": ("text", "tokens"),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
}


class Asked(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How to sample; None means that nothing was said."""

    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Share | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    stop: str | list[str] | None = None
    seed: Seed | None = None
    n: Annotated[int, Meta(ge=1, le=64)] | None = None
    top_k: Any = None
    min_p: Any = None
    repetition_penalty: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    logit_bias: Any = None
    min_tokens: Any = None
    best_of: Any = None
    ignore_eos: Any = None
    stop_token_ids: Any = None
    skip_special_tokens: Any = None
    spaces_between_special_tokens: Any = None
    include_stop_str_in_output: Any = None
    detokenize: Any = None


class Params(Asked, kw_only=True):
    """The `sampling_params` of /inference/v1/generate. logprobs: of how many of the likeliest."""

    logprobs: Top | None = None


class Generate(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of /inference/v1/generate."""

    token_ids: list[int]
    sampling_params: Params = msgspec.field(default_factory=Params)
    model: str | None = None
    request_id: str | None = None
    output_mode: Any = None
    stream: Any = None


class _Answering(Asked, kw_only=True):
    """What both of OpenAI's routes know; `user` and what follows it changes nothing here."""

    model: str | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    stream: Any = None
    stream_options: Any = None
    user: Any = None
    metadata: Any = None
    store: Any = None
    request_id: Any = None


class Complete(_Answering, kw_only=True):
    """Body of /v1/completions. logprobs: of how many of the likeliest."""

    prompt: str | list[int]
    logprobs: Top | None = None
    prompt_logprobs: Top | None = None
    echo: Any = None
    suffix: Any = None


class Chat(_Answering, kw_only=True):
    """Body of /v1/chat/completions."""

    messages: list[dict[str, Any]]
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Top | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    response_format: Any = None


def sampling_of(asked: Asked, max_tokens: int) -> Sampling:
    """The sampling; max_tokens where the body says none. Raises ConfigError for what it cannot."""
    check_neutral(asked)
    stop = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
    return Sampling(
        temperature=1.0 if asked.temperature is None else asked.temperature,
        top_p=asked.top_p or 1.0,
        max_tokens=asked.max_tokens or max_tokens,
        stop=tuple(stop),
        seed=asked.seed,
    )


def samplings(asked: Asked, sampling: Sampling) -> list[Sampling]:
    """One for each of the `n` choices; those of a seed have seeds that follow it."""
    seed, count = sampling.seed, asked.n or 1
    if seed is None or count == 1:
        return [sampling] * count
    return [replace(sampling, seed=seed + i) for i in range(count)]


def check_neutral(body: msgspec.Struct) -> None:
    """Raises ConfigError for a field that asks for what this engine does not do."""
    for name in _with_neutral_values(type(body)):
        value: object = getattr(body, name)
        if value is not None and value not in NEUTRAL[name]:
            raise ConfigError(
                f"{name}={value!r} is not offered: the local engine samples by temperature, "
                "top_p, stop and seed, whole answers at once; serve with vLLM for more"
            )


@cache
def _with_neutral_values(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name in NEUTRAL)


T = TypeVar("T")

LONGEST_S = 3600.0

Port = Annotated[int, Meta(ge=1, le=65535)]

Positive = Annotated[int, Meta(ge=1)]


class InitInfo(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where a trainer waits. transport: "gloo", or "files" that both see."""

    transport: Literal["gloo", "files"]
    master_address: str = ""
    master_port: Port = 1
    rank_offset: Positive = 1
    world_size: Positive = 2
    timeout_s: Annotated[float, Meta(gt=0, le=LONGEST_S)] = 60.0


class UpdateInfo(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Some params. path: the safetensors file that holds them; "" takes them from the trainer.

    last: no more will come. abort: ends the session instead.
    """

    names: list[str] = []
    dtype_names: list[str] = []
    shapes: list[list[int]] = []
    path: str = ""
    last: bool = False
    abort: bool = False

    def infos(self) -> list[ParamInfo]:
        """The params in order. Raises PublishError where the lists differ in length."""
        sizes = {len(self.names), len(self.dtype_names), len(self.shapes)}
        if len(sizes) > 1:
            raise PublishError(
                f"{len(self.names)} names, {len(self.dtype_names)} dtype_names and "
                f"{len(self.shapes)} shapes are announced"
            )
        rows = zip(self.names, self.dtype_names, self.shapes, strict=True)
        return [ParamInfo(name=n, dtype=d, shape=tuple(s)) for n, d, s in rows]


class Init(msgspec.Struct, kw_only=True):
    """Body of /init_weight_transfer_engine."""

    init_info: InitInfo


class Update(msgspec.Struct, kw_only=True):
    """Body of /update_weights."""

    update_info: UpdateInfo


class Finish(msgspec.Struct, kw_only=True):
    """Body of /finish_weight_update; None keeps the version's name."""

    weight_version: str | None = None


class NewVersion(msgspec.Struct, kw_only=True):
    """Body of /update_weight_version."""

    new_version: str


class Call(msgspec.Struct, kw_only=True):
    """Body of /collective_rpc."""

    method: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


def read(raw: bytes, kind: type[T]) -> T:
    """The body. Raises ConfigError that says what is wrong where, with the value that is there."""
    raw = raw or b"{}"
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{error}, where the body has {_there(raw, str(error))}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = excerpt(raw.decode(errors="replace"))
        raise ConfigError(f"the body is no JSON that can be read ({error}): {text}") from error


def _there(raw: bytes, said: str) -> str:
    """The value that an error is about, which ends in "at `$.a.b[0]`", as far as it is found."""
    try:
        value: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return excerpt(raw.decode(errors="replace"))
    path = said.partition("`$.")[2].rstrip("`").partition("[")[0]
    for key in filter(None, path.split(".")):
        if not isinstance(value, dict) or key not in value:
            break
        value = value[key]
    return excerpt(repr(value))
