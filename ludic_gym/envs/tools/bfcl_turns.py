"""BFCL: the conversations of the Berkeley Function-Calling Leaderboard, on the package's worlds."""

from __future__ import annotations

import copy
import decimal
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from ludic_gym.concurrency import Caught
from ludic_gym.data.load import Origin, Parse, Rows, parsed_rows
from ludic_gym.data.row import Row
from ludic_gym.envs.core.base import Info, Turn, checked_choice, end, proceed
from ludic_gym.envs.core.question import DatasetEnv, Question
from ludic_gym.envs.tools.bfcl import (
    INSTALL,
    answered_rows,
    data_folder,
    json_rows,
    newest_change,
    read_calls,
    schemas_for,
    tools_of,
)
from ludic_gym.envs.tools.bfcl_rules import Function
from ludic_gym.envs.tools.calls import FORM, Call, listed
from ludic_gym.envs.tools.code_literals import python_calls
from ludic_gym.errors import DataError
from ludic_gym.packages import optional

_CODE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
# Class of a world -> its module in the package, and the file with its functions.
WORLDS: Mapping[str, str] = {
    "GorillaFileSystem": "gorilla_file_system", "MathAPI": "math_api",
    "MessageAPI": "message_api", "TwitterAPI": "posting_api", "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot", "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}  # fmt: skip
CATEGORIES = (
    "multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context",
)  # fmt: skip
# Replies with calls that one message of the user may take.
MOST_REPLIES = 20
# Arguments of MathAPI that take time without limit.
COSTLY = ("exponent", "precision")
MOST_COSTLY = 1_000
NEW_FUNCTIONS = "I have updated some more functions you can choose from. What about now?"
DONE = "That is all."
PROMPT = (
    "Do what the user asks for in each message by calls of these functions:\n{functions}\n"
    "Reply with a JSON list of calls and nothing else: [{form}, ...]. You are given the results, "
    "and may call further functions. Once there is nothing left to call for a message, or if no "
    "function fits it, or if a value that a call needs is missing, say so in a sentence; then the "
    "next message comes. A message takes up to {replies} replies with calls."
)

World = Mapping[str, Any]
"""Objects of the package by the name of their class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation(Question):
    """Messages of a user, and the calls that are right after each; text is the first message.

    truth: the calls in Python's syntax, as JSON. held: place of a message -> functions offered from
    there on, which the worlds have before. state: arguments of the worlds by class.
    """

    category: str
    messages: tuple[str, ...]
    calls: tuple[tuple[str, ...], ...]
    functions: tuple[Function, ...]
    held: Mapping[int, tuple[str, ...]]
    classes: tuple[str, ...]
    state: Mapping[str, Any]


class BFCLMultiTurnEnv(DatasetEnv):
    """A conversation of BFCL v4 with a user, whose messages are fulfilled by calls on a world.

    The worlds (a file system, a car, flights, shares, tickets, messages, posts, sums) are those of
    the package bfcl-eval: pip install --no-deps bfcl-eval mpmath.

    - Observation: a message of the user, or the results of the calls.
    - Action: calls as in `BFCLEnv`; any other reply ends the message, and the next one comes.
    - Reward: 1 if after every message the worlds are as they must be and the results that the right
      calls give have been seen, else 0 (component "conversation"). An episode ends at the first
      message for which that fails, and at the 21st reply with calls to one message.
    - Info: "illegal" in every step is True for calls that cannot be read; the last one has
      "fulfilled", the number of messages, "rule", the reason of a failure, and "category".

    Args:
        data: as in `BFCLEnv`.
        category: "multi_turn_base", "multi_turn_miss_func" (a function is offered late),
            "multi_turn_miss_param" (a value is named late) or "multi_turn_long_context".
    """

    single_turn = False
    metadata = {**DatasetEnv.metadata, "blocking": True}  # noqa: RUF012

    def __init__(
        self,
        data: str | None = None,
        category: str = "multi_turn_base",
        render_mode: str | None = None,
    ) -> None:
        self._category = checked_choice("category", category, CATEGORIES)
        folder = data_folder(data)
        super().__init__(_read_rows(folder, category, newest_change(folder)), render_mode)
        self.prompt = ""
        # As in `BFCLEnv`.
        self.action_tools = tools_of(schemas_for(_asked(self._questions[0]).functions))
        # A package that is missing fails here and not in the first episode.
        for name in sorted({name for one in self._questions for name in _asked(one).classes}):
            world_class(name)

    def ask(self, options: Mapping[str, Any]) -> Question:
        """Set the worlds up."""
        asked = self.question = _asked(super().ask(options))
        long = self._category == "multi_turn_long_context"
        self._world, self._goal = (make_world(asked, long=long) for _ in range(2))
        self._number, self._seen, self._replies = 0, list[str](), 0
        self.about["category"] = asked.category
        schemas = self._offer()
        self.prompt = PROMPT.format(functions=listed(schemas), form=FORM, replies=MOST_REPLIES)
        return asked

    def turn(self, action: str) -> Turn:
        """Make the calls, or turn to the next message."""
        calls, problem = read_calls(action, self._asked.functions)
        if calls and not problem:
            results = [run(self._world, call) for call in calls]
            self._seen += results
            self._replies += 1
            if self._replies > MOST_REPLIES:
                return self._ended(f"more than {MOST_REPLIES} replies with calls")
            pairs = zip(calls, results, strict=True)
            return proceed(
                "\n".join(f"{call.name}: {result}" for call, result in pairs),
                info={"illegal": False},
            )
        if failure := self._failure():
            return self._ended(failure, illegal=bool(problem))
        self._number, self._replies = self._number + 1, 0
        if self._number == len(self._asked.messages):
            return self._ended("", illegal=bool(problem))
        text = self._asked.messages[self._number]
        if self._number in self._asked.held:
            new = set(self._asked.held[self._number])
            schemas = {name: one for name, one in self._offer().items() if name in new}
            text = f"{listed(schemas)}\n{NEW_FUNCTIONS}"
        return proceed(text, info={"illegal": bool(problem)})

    def best_action(self) -> str:
        """The right calls, then a sentence."""
        texts = self._asked.calls[self._number]
        if self._replies or not texts:
            return DONE
        calls = [call for text in texts for call in calls_of(text, self._goal)]
        return f"[{', '.join(call.as_json() for call in calls)}]"

    def picture(self) -> str:
        """The last observation."""
        return self._observation or ""

    @property
    def _asked(self) -> Conversation:
        return _asked(self.question)

    def _offer(self) -> Mapping[str, Any]:
        """Offer the functions of the present message: their schemas."""
        later = {
            name
            for place, names in self._asked.held.items()
            if place > self._number
            for name in names
        }
        offered = [one for one in self._asked.functions if one["name"] not in later]
        schemas = schemas_for(offered)
        self.action_tools = tools_of(schemas)
        return schemas

    def _failure(self) -> str:
        """The reason why the message is not fulfilled; "" if it is."""
        texts = self._asked.calls[self._number]
        made = [run(self._goal, call) for text in texts for call in calls_of(text, self._goal)]
        # A message that nothing fulfils is judged by the state after the next one.
        if not texts:
            return ""
        if not self._replies:
            return "no call was made"
        if different := [
            name for name in self._goal if not _is_equal(self._world, self._goal, name)
        ]:
            return f"not in the right state: {', '.join(different)}"
        left = list(self._seen)
        for result in made:
            if result not in left:
                return f"no call had the result {result:.100}"
            left.remove(result)
        return ""

    def _ended(self, failure: str, *, illegal: bool = False) -> Turn:
        success = not failure
        self.verdict = failure or "fulfilled"
        info: Info = {
            **self.about,
            "illegal": illegal,
            "fulfilled": self._number,
            "rule": self.verdict,
            "truth": self.question.truth,
        }
        return end(failure, success=success, info=info, conversation=success)


def _asked(question: Question) -> Conversation:
    assert isinstance(question, Conversation), "_conversation makes all rows"
    return question


def world_class(name: str) -> Any:  # noqa: ANN401 (not typed)
    """A class of the package. Raises MissingPackage."""
    return getattr(optional(f"{_CODE}.{WORLDS[name]}", f"{INSTALL} mpmath"), name)


def make_world(asked: Conversation, *, long: bool) -> World:
    """The worlds of a conversation at its start. long: True fills them with further records."""
    world = {name: world_class(name)() for name in asked.classes}
    for name, one in world.items():
        # Sums have no state.
        if name != "MathAPI":
            one._load_scenario(copy.deepcopy(asked.state.get(name, {})), long_context=long)
    return world


def methods(world: World) -> Mapping[str, Any]:
    """The functions of the worlds, by name."""
    return {
        name: method
        for one in world.values()
        for name, method in inspect.getmembers(one, inspect.ismethod)
        if name[0] != "_"
    }


def run(world: World, call: Call) -> str:
    """The result of a call as text, or its error as the package words it."""
    method = methods(world).get(call.name)
    if method is None:
        return f"Error during execution: name {call.name!r:.100} is not defined"
    costly = [call.arguments[name] for name in COSTLY if name in call.arguments]
    if any(not isinstance(one, int | float) or abs(one) > MOST_COSTLY for one in costly):
        return f"Error during execution: {costly[0]!r:.100} is more than {MOST_COSTLY}"
    results = list[str]()
    # The package's methods raise any error for arguments that their authors did not think of, and
    # set the precision of decimal numbers.
    with Caught(Exception) as failure, decimal.localcontext():
        result = method(**call.arguments)
        results.append(json.dumps(result) if isinstance(result, dict) else str(result))
    return results[-1] if failure.error is None else f"Error during execution: {failure.error}"


def calls_of(text: str, world: World) -> list[Call]:
    """The calls of a row, in Python's syntax."""
    parameters = {
        name: list(inspect.signature(one).parameters) for name, one in methods(world).items()
    }
    calls = python_calls(text, parameters)
    assert calls is not None, f"{text!r} is no call"
    return calls


def _is_equal(world: World, goal: World, name: str) -> bool:
    """True if the public attributes of two worlds are equal."""
    ours, right = ({k: v for k, v in vars(w[name]).items() if k[0] != "_"} for w in (world, goal))
    # A folder that a player has moved into itself has no end.
    with Caught(RecursionError):
        return all(ours[key] == value for key, value in right.items())
    return False


# Few: see `bfcl._read_rows`.
@lru_cache(maxsize=8)
def _read_rows(folder: Path, category: str, changed_ns: int) -> Rows[Conversation]:
    rows, origin = answered_rows(folder, category), Origin(f"BFCL_v4_{category}", "file", "")
    return parsed_rows(enumerate(rows), Parse(partial(_conversation, folder)), origin)


@lru_cache(maxsize=32)
def _functions_of(folder: Path, name: str) -> tuple[Function, ...]:
    rows = json_rows(folder, WORLDS[name], "multi_turn_func_doc")
    return tuple(row.fields for row in rows)


def _conversation(folder: Path, row: Row) -> Conversation:
    """The conversation of a row. Raises DataError."""
    fields = row.fields
    try:
        messages = tuple("\n".join(m["content"] for m in turn) for turn in fields["question"])
        held = {int(k): tuple(names) for k, names in fields.get("missed_function", {}).items()}
        classes = tuple(fields["involved_classes"])
        return Conversation(
            messages[0],
            json.dumps(fields["ground_truth"]),
            category=fields["category"],
            messages=messages,
            calls=tuple(map(tuple, fields["ground_truth"])),
            functions=tuple(one for name in classes for one in _functions_of(folder, name)),
            held=held,
            classes=classes,
            state=fields["initial_config"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{row.where}: no row of BFCL ({type(error).__name__}: {error})") from error
