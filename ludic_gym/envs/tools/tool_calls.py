"""ToolCalls: errands done by calls that change a calendar, a bank and a shop."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import Info, TextEnv, Turn, ending
from ludic_gym.envs.core.solitaire import checked_range
from ludic_gym.envs.tools.world import PURPOSES, SCHEMAS, World
from ludic_gym.envs.worlds.errands import KINDS, Errand, new_world
from ludic_gym.errors import NoOracle
from ludic_gym.tools.schema import problem_of

FINISH = "finish"
_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.S)
_PARTS = ("calendar", "balances", "cart", "orders")


class ToolCallsEnv(TextEnv):
    """Errands in a simulated week, done by tool calls; the state they leave decides.

    errands: how many there are, of different kinds: calendar, bank, shop.
    turns: how many calls there are; whoever has not finished by then has failed.

    Observation: the errands, then what each call returns. Action: a tool call as JSON,
    {"name": ..., "arguments": {...}}, by itself or in <tool_call> tags; `finish` ends the episode.
    These tools change the environment, so they are its actions; a policy's own tools (`ToolUse`)
    change nothing. Reward: 1 if calendar, accounts, cart and orders are as they should be, and
    nothing else has changed. Every info after a call has "illegal"; the last one says what is
    "different".

        Cancel the lunch with Ana on day 3.
    {"name": "list_events", "arguments": {"day": 3}}
        7: 12:00 lunch with Ana
    {"name": "cancel_event", "arguments": {"number": 7}}
    {"name": "finish", "arguments": {}}             (reward 1)
    """

    def __init__(self, errands: int = 2, turns: int = 16, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self._count = checked_range("errands", errands, 1, len(KINDS))
        self._turns = checked_range("turns", turns, 1, 10_000)
        self._turns_left = self._turns
        self._seed = 0
        self._world = World()
        self._goal = World()

    def _start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        self._row(options)
        self._seed = int(self.np_random.integers(2**31))
        self._turns_left = self._turns
        self._world, errands = task(self._seed, self._count)
        self._goal = copy.deepcopy(self._world)
        while call := next_call(errands, self._goal):
            getattr(self._goal, call[0])(**call[1])
        return "\n".join(errand.text for errand in errands), {"system_prompt": system_prompt()}

    def _advance(self, action: str) -> Turn:
        self._turns_left -= 1
        name, arguments, problem = call_in(action)
        if name == FINISH and not problem:
            return self._ended(illegal=False)
        text = f"Error: {problem}" if problem else self._called(name, arguments)
        if not self._turns_left:
            return self._ended(illegal=bool(problem), finished=False)
        text = f"{text}\nCalls left: {self._turns_left}"
        return text, 0.0, False, False, {"illegal": bool(problem)}

    def _called(self, name: str, arguments: Mapping[str, Any]) -> str:
        try:
            return str(getattr(self._world, name)(**arguments))
        except ValueError as error:
            return f"Error: {error}"

    def _ended(self, *, illegal: bool, finished: bool = True) -> Turn:
        pairs = zip(_PARTS, self._world.state(), self._goal.state(), strict=True)
        different = [part for part, ours, goal in pairs if ours != goal]
        if not finished:
            different.append("not finished")
        success = not different
        info = {**ending(success=success, state=float(success)), "illegal": illegal}
        info["different"] = ", ".join(different)
        return "", float(success), True, False, info

    def oracle_action(self) -> str:
        """The next call that the errands take. Raises NoOracle when no episode is running."""
        if not self._running:
            raise NoOracle(f"{type(self).__name__}: no errands are open; call reset() first")
        _, errands = task(self._seed, self._count)
        name, arguments = next_call(errands, self._world) or (FINISH, {})
        return json.dumps({"name": name, "arguments": arguments})


def task(seed: int, count: int) -> tuple[World, list[Errand]]:
    """The world and the errands of a seed."""
    # An errand holds functions, which an env could neither pickle nor copy: it is made anew.

    rng = np.random.default_rng(seed)
    world = new_world(rng)
    kinds = [str(kind) for kind in rng.permutation(list(KINDS))[:count]]
    return world, [KINDS[kind][int(rng.integers(len(KINDS[kind])))](rng, world) for kind in kinds]


def next_call(errands: list[Errand], world: World) -> tuple[str, dict[str, Any]] | None:
    """The next call that the first errand takes which is not done; None if all are."""
    calls = (errand.next_call(world) for errand in errands)
    return next((call for call in calls if call), None)


def call_in(action: str) -> tuple[str, dict[str, Any], str]:
    """The name and arguments of the call in a text, and what is wrong with it, "" if nothing."""
    said = action.rpartition("</think>")[2]
    tagged = _TAGGED.findall(said)
    try:
        call = json.loads(tagged[-1] if tagged else said)
    except (ValueError, RecursionError) as error:
        return "", {}, f"that is no tool call: not JSON ({error})"
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return "", {}, 'a tool call is {"name": ..., "arguments": {...}}'
    name, arguments = call["name"], call.get("arguments") or {}
    if name == FINISH:
        return name, {}, ""
    if name not in SCHEMAS:
        return name, {}, f"there is no tool {name!r}; there are {', '.join(SCHEMAS)}, {FINISH}"
    return name, arguments, problem_of(arguments, SCHEMAS[name], "the arguments")


def system_prompt() -> str:
    """The rules, the tools and the reply format."""
    tools = [
        {"name": name, "description": PURPOSES[name], "parameters": SCHEMAS[name]}
        for name in SCHEMAS
    ]
    tools.append({"name": FINISH, "description": "Say that all is done.", "parameters": {}})
    listed = "\n".join(json.dumps(tool) for tool in tools)
    return (
        f"Do the errands, and nothing else, with these tools:\n{listed}\nReply with one tool call "
        'as JSON, {"name": ..., "arguments": {...}}, and nothing else. You are told the result.'
    )
