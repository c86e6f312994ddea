"""Dataclasses that are made in a tenth of the time, as structs of msgspec."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
# Methods of a frozen dataclass with slots that a struct has in C.
_REPLACED = {"__init__", "__setattr__", "__delattr__", "__getstate__", "__setstate__", "__slots__"}


def as_struct(kind: type[T]) -> type[T]:
    """The frozen, keyword-only dataclass with slots as a struct of the same fields and methods.

    A frozen dataclass sets each field by a call of `object.__setattr__`; a struct is made by one
    function in C. `dataclasses.fields`, `replace` and `asdict` work with it. Repr, equality and
    hash are the dataclass's. No dataclass can inherit from it.
    """
    own = {f.name for f in fields(kind)} | _REPLACED  # type: ignore[arg-type]
    struct = msgspec.defstruct(
        kind.__name__,
        [(f.name, f.type, _default(f)) for f in fields(kind)],  # type: ignore[arg-type]
        namespace={name: value for name, value in vars(kind).items() if name not in own},
        module=kind.__module__,
        frozen=True,
        kw_only=True,
    )
    # Afterwards, because msgspec sets its own, whose error is no FrozenInstanceError.
    for name in ("__setattr__", "__delattr__"):
        setattr(struct, name, vars(kind)[name])
    return struct  # type: ignore[return-value]


def _default(field: Field[Any]) -> Any:  # noqa: ANN401 - of any type
    if field.default_factory is not MISSING:
        return msgspec.field(default_factory=field.default_factory)
    return msgspec.NODEFAULT if field.default is MISSING else field.default
