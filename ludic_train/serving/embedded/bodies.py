"""Bodies of requests: read, checked against their types, and refused with what is wrong in them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from ludic_gym.clients.transport import excerpt
from ludic_gym.errors import ConfigError
from ludic_train.errors import PublishError
from ludic_vllm.wire import ParamInfo

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
