"""The functions that an episode of FunctionCalls offers: their schemas, and calls of them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ludic_gym.envs.tools.calls import Call
from ludic_gym.envs.worlds.functions.groups import GROUPS
from ludic_gym.tools.schema import JSONSchema, described, parameters_schema, problem_of


def _functions(group: str) -> list[str]:
    """Names of the functions of a group."""
    return [name for name in vars(GROUPS[group]) if name[0] != "_" and name != "state"]


# Function -> its group.
GROUP_OF: Mapping[str, str] = MappingProxyType(
    {name: group for group in GROUPS for name in _functions(group)}
)


def _schema(name: str) -> JSONSchema:
    # Of a bound method, which has no `self`; the generator only fills a state.
    bound = getattr(GROUPS[GROUP_OF[name]](np.random.default_rng(0)), name)
    return parameters_schema(bound)


SCHEMAS: Mapping[str, JSONSchema] = MappingProxyType({name: _schema(name) for name in GROUP_OF})


class Toolbox:
    """The functions of some groups, and the groups' state."""

    def __init__(self, groups: Sequence[str], rng: np.random.Generator) -> None:
        self._groups = {name: GROUPS[name](rng) for name in groups}

    def functions(self) -> list[str]:
        """Names of the functions."""
        return [name for name, group in GROUP_OF.items() if group in self._groups]

    def problem(self, call: Call) -> str:
        """The reason why the call is not valid; "" if it is."""
        if call.name not in self.functions():
            return f"there is no function {call.name!r}; there are {', '.join(self.functions())}"
        return problem_of(call.arguments, SCHEMAS[call.name], "the arguments")

    def run(self, call: Call) -> str:
        """The result of a valid call; "Error: ..." where the state does not permit it."""
        try:
            return str(getattr(self._groups[GROUP_OF[call.name]], call.name)(**call.arguments))
        # Rules of a group are part of the task: a broken one is a result and not an exception.
        except (ValueError, ArithmeticError) as error:
            return f"Error: {error}"

    def state(self) -> list[object]:
        """The state of all groups, for comparisons."""
        return [group.state() for group in self._groups.values()]

    def group(self, name: str) -> Any:  # noqa: ANN401 (each group has its own attributes)
        """The group of that name."""
        return self._groups[name]

    def listed(self) -> str:
        """The schemas of the functions, one in each line."""
        return "\n".join(LISTED[name] for name in self.functions())


def _listed(name: str) -> str:
    text = getattr(GROUPS[GROUP_OF[name]], name).__doc__ or ""
    purpose, _ = described(text, tuple(SCHEMAS[name]["properties"]))
    return json.dumps({"name": name, "description": purpose, "parameters": SCHEMAS[name]})


def _defaults(name: str) -> dict[str, object]:
    """The values of the optional arguments."""
    parameters = inspect.signature(getattr(GROUPS[GROUP_OF[name]], name)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


DEFAULTS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {name: _defaults(name) for name in GROUP_OF}
)
LISTED: Mapping[str, str] = MappingProxyType({name: _listed(name) for name in GROUP_OF})


def same_call(one: Call, other: Call) -> bool:
    """True if both call the same function with the same arguments.

    Texts are compared without regard to case and outer white space, numbers by value, and an
    argument that is left out has its default.
    """
    return one.name == other.name and _plain(one) == _plain(other)


def _plain(call: Call) -> dict[str, object]:
    """The arguments for a comparison, with defaults."""
    # An argument that is left out and one that equals its default are the same call.
    given = {**DEFAULTS[call.name], **call.arguments}
    return {
        name: value.strip().casefold() if isinstance(value, str) else value
        for name, value in given.items()
    }
