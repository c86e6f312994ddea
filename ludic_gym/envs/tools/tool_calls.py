"""ToolCalls: errands done by tool calls that change a calendar, a bank and a shop."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import TextEnv, Turn, checked_choice, checked_range, end, proceed
from ludic_gym.envs.core.levels import SPLITS, Split, drawn
from ludic_gym.envs.tools.calls import FORM, calls_in
from ludic_gym.envs.tools.world import PURPOSES, SCHEMAS, World
from ludic_gym.envs.worlds.errands import KINDS, Errand, new_world
from ludic_gym.tools.schema import problem_of
from ludic_gym.tools.tool import tool_schema

FINISH = "finish"
DONE = "Say that all is done."
_PARTS = ("calendar", "balances", "cart", "orders")


class ToolCallsEnv(TextEnv):
    """Errands in a simulated week, done by tool calls and graded by the final state.

    These tools change the environment, so they are its actions; a policy's own tools (`ToolUse`)
    do not change it.

    - Observation: the errands, then the result of each call.
    - Action: a tool call as JSON, {"name": ..., "arguments": {...}}, alone or in <tool_call> tags;
      `finish` ends the episode. An episode without `finish` fails.
    - Reward: 1 if calendar, accounts, cart and orders are in the required state, with no other
      change, else 0 (component "state").
    - Info: "illegal" in every step; "different" in the last one names the parts that differ.

    Args:
        errands: number of errands, each of another kind: calendar, bank, shop.
        turns: number of calls.
        split: "train" and "test" have no errands in common; one in five is in "test".
        render_mode: "ansi", "html" or None.

    ```text
    Cancel the lunch with Ana on day 3.
    > {"name": "list_events", "arguments": {"day": 3}}
    7: 12:00 lunch with Ana
    Calls left: 15
    > {"name": "cancel_event", "arguments": {"number": 7}}
    cancelled appointment 7
    Calls left: 14
    > {"name": "finish", "arguments": {}}       (reward 1)
    ```
    """

    action_tools = (
        *(tool_schema(name, PURPOSES[name], dict(SCHEMAS[name])) for name in SCHEMAS),
        tool_schema(FINISH, DONE, {"type": "object", "properties": {}}),
    )

    def __init__(
        self,
        errands: int = 2,
        turns: int = 16,
        render_mode: str | None = None,
        *,
        split: Split = "all",
    ) -> None:
        super().__init__(render_mode)
        self._split = checked_choice("split", split, SPLITS)
        self._count = checked_range("errands", errands, 1, len(KINDS))
        self._turns = checked_range("turns", turns, 1, 10_000)
        self._turns_left = self._turns
        self._seed = 0
        self._world = World()
        self._goal = World()

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Draw a world and errands; the goal is the state after the oracle's calls."""
        self._seed = drawn(
            lambda: int(self.np_random.integers(2**31)),
            self._split,
            lambda seed: text_of(task(seed, self._count)[1]),
        )
        self._turns_left = self._turns
        self._world, errands = task(self._seed, self._count)
        self._goal = copy.deepcopy(self._world)
        while call := next_call(errands, self._goal):
            getattr(self._goal, call[0])(**call[1])
        return text_of(errands), system_prompt()

    def turn(self, action: str) -> Turn:
        """Execute the call."""
        # Before the call, so that a failed call counts too.
        self._turns_left -= 1
        name, arguments, problem = call_in(action)
        if name == FINISH and not problem:
            return self._ended(illegal=False)
        text = f"Error: {problem}" if problem else self._called(name, arguments)
        if not self._turns_left:
            return self._ended(illegal=bool(problem), finished=False)
        return proceed(f"{text}\nCalls left: {self._turns_left}", info={"illegal": bool(problem)})

    def _called(self, name: str, arguments: Mapping[str, Any]) -> str:
        try:
            return str(getattr(self._world, name)(**arguments))
        # Rules of the world are part of the game: a broken one is a result and not an exception.
        except ValueError as error:
            return f"Error: {error}"

    def _ended(self, *, illegal: bool, finished: bool = True) -> Turn:
        pairs = zip(_PARTS, self._world.state(), self._goal.state(), strict=True)
        # States are compared, not calls: any sequence that ends there is right.
        different = [part for part, ours, goal in pairs if ours != goal]
        if not finished:
            different.append("not finished")
        success = not different
        info = {"illegal": illegal, "different": ", ".join(different)}
        return end(success=success, info=info, state=success)

    def best_action(self) -> str:
        """The next call that the errands need."""
        _, errands = task(self._seed, self._count)
        name, arguments = next_call(errands, self._world) or (FINISH, {})
        return json.dumps({"name": name, "arguments": arguments})


def task(seed: int, count: int) -> tuple[World, list[Errand]]:
    """The world and the errands of a seed."""
    # Errands hold local functions, which cannot be pickled: an env stores the seed instead.
    rng = np.random.default_rng(seed)
    world = new_world(rng)
    kinds = [str(kind) for kind in rng.permutation(list(KINDS))[:count]]
    return world, [KINDS[kind][int(rng.integers(len(KINDS[kind])))](rng, world) for kind in kinds]


def text_of(errands: list[Errand]) -> str:
    """The errands in words, a line for each."""
    return "\n".join(errand.text for errand in errands)


def next_call(errands: list[Errand], world: World) -> tuple[str, dict[str, Any]] | None:
    """The next call of the first errand that is not done; None if all are done."""
    calls = (errand.next_call(world) for errand in errands)
    return next((call for call in calls if call), None)


def call_in(action: str) -> tuple[str, dict[str, Any], str]:
    """Name and arguments of the call in a text, and its error ("" for a valid call)."""
    calls, problem = calls_in(action)
    if not calls:
        return "", {}, problem or f"a tool call is {FORM}"
    # The last one counts, because models write drafts first.
    name, arguments = calls[-1].name, dict(calls[-1].arguments)
    if name == FINISH:
        # Arguments of `finish` are ignored: models like to add a summary.
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
    tools.append({"name": FINISH, "description": DONE, "parameters": {}})
    listed = "\n".join(json.dumps(tool) for tool in tools)
    return (
        f"Do the errands, and nothing else, with these tools:\n{listed}\nReply with one tool call "
        'as JSON, {"name": ..., "arguments": {...}}, and nothing else. You are told the result.'
    )
