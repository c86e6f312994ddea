"""FunctionCalls: a user's requests, fulfilled by one call, several, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import Info, TextEnv, Turn, checked_choice, end, proceed, shuffled
from ludic_gym.envs.core.levels import LEVELS, SPLITS, Level, Split, drawn
from ludic_gym.envs.tools.calls import FORM, Call, calls_in
from ludic_gym.envs.worlds.functions.groups import GROUPS
from ludic_gym.envs.worlds.functions.requests import Request, requests
from ludic_gym.envs.worlds.functions.toolbox import Toolbox, same_call

DONE = "[]"
MOST_CALLS = 16
# Replies to one request, the last one without a call.
REPLIES = 5
PROMPT = (
    "You fulfil the requests of a user by calling functions:\n{functions}\n"
    "Reply with a JSON list of calls and nothing else: [{form}, ...]. Calls of one reply are "
    "executed in their order. You are shown the results, and may call further functions. Reply "
    "with [] once the request is fulfilled, or at once if no function can fulfil it or if a fact "
    "is missing that a call needs; then the next request comes. Call nothing that the request does "
    "not need. You have {replies} replies for each request."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Requests of an episode. world: seed of the state of the offered groups."""

    offered: tuple[str, ...]
    world: int
    requests: tuple[Request, ...]


# Level -> numbers of groups that are offered, and of requests.
SIZES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"easy": (1, 2), "medium": (3, 4), "hard": (5, 7)}
)


class FunctionCallsEnv(TextEnv):
    """A conversation of requests for single, parallel and dependent calls, and for none at all.

    In the manner of the Berkeley Function-Calling Leaderboard (Patil et al. 2025), generated here.

    - Observation: the first request; later the results of the calls, or the next request.
    - Action: a JSON list of calls, [{"name": ..., "arguments": {...}}, ...], also in a code block
      or in <tool_call> tags; [] ends a request. After five replies it ends by itself.
    - Reward: 1 if every request is fulfilled, else 0 (component "requests"). A request that changes
      the state is judged by the state after it; any other one by its calls, which must be the
      expected ones in any order, with no other; some need no call at all.
    - Info: "illegal" in every step is True for a reply that is no list of valid calls; "fulfilled"
      in the last one is the number of fulfilled requests.

    Args:
        level: "easy" (functions of one group, 2 requests), "medium" (of three, 4 requests) or
            "hard" (of five, 7 requests).
        split: "train" and "test" have no conversation in common; one in five is in "test".
        render_mode: "ansi", "html" or None.

    ```text
    User: How warm is it in the kitchen, and in the attic?
    > [{"name": "read_temperature", "arguments": {"room": "kitchen"}},
       {"name": "read_temperature", "arguments": {"room": "attic"}}]
    read_temperature: 19
    read_temperature: 22
    > []
    User: Set the temperature of the hall.
    > []                                        (reward 1: the number of degrees is missing)
    ```
    """

    def __init__(
        self, level: Level = "medium", split: Split = "all", render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode)
        self._size = SIZES[checked_choice("level", level, LEVELS)]
        self._split = checked_choice("split", split, SPLITS)

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Draw the requests."""
        self._plan = drawn(lambda: plan_of(self._size, self.np_random), self._split)
        self._world, self._goal = (
            Toolbox(self._plan.offered, np.random.default_rng(self._plan.world)) for _ in range(2)
        )
        self._number, self._fulfilled = 0, 0
        self._begin_request()
        prompt = PROMPT.format(functions=self._world.listed(), form=FORM, replies=REPLIES)
        return f"User: {self._request.text}", prompt

    def turn(self, action: str) -> Turn:
        """Execute the calls, or end the request."""
        self._replies_left -= 1
        calls, problem = self._read(action)
        info: Info = {"illegal": bool(problem)}
        if calls and not problem:
            self._made += calls
            text = "\n".join(f"{call.name}: {self._world.run(call)}" for call in calls)
        else:
            text = f"Error: {problem}" if problem else ""
        # The last reply ends the request as [] does.
        if self._replies_left and (calls or problem):
            return proceed(
                f"{text}\nReplies left for this request: {self._replies_left}", info=info
            )
        self._fulfilled += self._is_fulfilled()
        self._number += 1
        if self._number < len(self._plan.requests):
            self._begin_request()
            return proceed(f"{text}\nUser: {self._request.text}".lstrip(), info=info)
        success = self._fulfilled == len(self._plan.requests)
        info["fulfilled"] = self._fulfilled
        return end(text, success=success, info=info, requests=success)

    def _begin_request(self) -> None:
        self._request = self._plan.requests[self._number]
        self._replies_left = REPLIES
        self._made: list[Call] = []
        for reply in self._request.replies:
            for call in reply:
                self._goal.run(call)

    def _is_fulfilled(self) -> bool:
        # The state counts for every request: also one that needs no change must not make any.
        if self._world.state() != self._goal.state():
            return False
        if self._request.by_state:
            return True
        expected = [call for reply in self._request.replies for call in reply]
        # As multisets: the order of independent calls is free, and none may come twice.
        return len(self._made) == len(expected) and all(
            sum(same_call(one, made) for made in self._made)
            == sum(same_call(one, other) for other in expected)
            for one in expected
        )

    def _read(self, action: str) -> tuple[list[Call], str]:
        """The calls in a reply, and its error."""
        if action.strip().strip("`.").lower() in ("none", "done", "no call"):
            return [], ""
        calls, problem = calls_in(action)
        if not problem and len(calls) > MOST_CALLS:
            problem = f"a reply has at most {MOST_CALLS} calls, got {len(calls)}"
        return calls, problem or next(filter(None, map(self._world.problem, calls)), "")

    def best_action(self) -> str:
        """The calls that the request still needs."""
        for reply in self._request.replies:
            missing = [
                call for call in reply if not any(same_call(call, made) for made in self._made)
            ]
            if missing:
                return f"[{', '.join(call.as_json() for call in missing)}]"
        return DONE


def plan_of(size: tuple[int, int], rng: np.random.Generator) -> Plan:
    """A conversation. size: numbers of groups and of requests."""
    names = shuffled(rng, list(GROUPS))
    offered, others = tuple(names[: size[0]]), names[size[0] :]
    world = int(rng.integers(2**31))
    box = Toolbox(offered, np.random.default_rng(world))
    made = requests(rng, box, offered, others, size[1])
    return Plan(offered=offered, world=world, requests=made)
