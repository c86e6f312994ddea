"""ToolCalls: errands done by calls to a calendar, a bank and a shop.

The docstrings of the calls are the tool descriptions that models see: they are part of the
benchmark.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import (
    TextEnv,
    Turn,
    checked_choice,
    checked_range,
    end,
    pick,
    proceed,
    random_int,
)
from ludic_gym.envs.core.levels import SPLITS, Split, draw_in_split
from ludic_gym.envs.tools.calls import (
    FORM,
    Call,
    Schemas,
    calls_in,
    listed,
    problem_with,
    result_of,
    schemas_of,
)
from ludic_gym.tools.tool import tool_schema

PROMPT = (
    "Do the errands, and nothing else, with these tools:\n{tools}\nReply with one tool call as "
    "JSON, {form}, and nothing else. You are told the result."
)
PEOPLE = ("Ana", "Boris", "Chidi", "Dana", "Elif", "Femi")
OCCASIONS = ("lunch with", "call with", "review with", "walk with")
ACCOUNTS = ("daily", "savings", "rent", "travel")


@dataclass(frozen=True, slots=True)
class Errand:
    """A task in words, and the function that returns its next call; None once it is done."""

    text: str
    next_call: Callable[[World], Call | None]


def new_world(rng: np.random.Generator) -> World:
    """A world with two appointments a day, and money in all accounts."""
    world = World()
    titles = [f"{occasion} {person}" for occasion in OCCASIONS for person in PEOPLE]
    # Two of the first four hours of each day, so that the first free hour has to be looked up.
    times = [(day, int(hour)) for day in DAYS for hour in rng.permutation(HOURS[:4])[:2]]
    for number, title in enumerate(rng.permutation(titles)[: len(times)], 1):
        day, hour = times[number - 1]
        world.events[number] = [day, hour, str(title)]
    world.balances = {name: random_int(rng, 100, 999) for name in ACCOUNTS}
    return world


def cancel(rng: np.random.Generator, world: World) -> Errand:
    """Cancel one appointment."""
    number = pick(rng, tuple(world.events))
    day, _, title = world.events[number]

    def next_call(now: World) -> Call | None:
        # The calls follow from the state, not from a script, so that the oracle also continues
        # another player's episode.
        return Call("cancel_event", {"number": number}) if number in now.events else None

    return Errand(f"Cancel the {title} on day {day}.", next_call)


def move(rng: np.random.Generator, world: World) -> Errand:
    """Move one appointment to the first free hour of another day."""
    number = pick(rng, tuple(world.events))
    old_day, _, title = world.events[number]
    day = pick(rng, tuple(one for one in DAYS if one != old_day))
    hour = first_free(world, day)

    def next_call(now: World) -> Call | None:
        if number not in now.events or now.events[number][:2] == [day, hour]:
            return None
        return Call("move_event", {"number": number, "day": day, "hour": hour})

    text = f"Move the {title} from day {old_day} to the first free hour of day {day}"
    return Errand(f"{text} (hours begin at 8).", next_call)


def add(rng: np.random.Generator, world: World) -> Errand:
    """Make a new appointment at the first free hour of a day."""
    day, title = pick(rng, tuple(DAYS)), f"visit to {pick(rng, PEOPLE)}"
    hour = first_free(world, day)

    def next_call(now: World) -> Call | None:
        if [day, hour, title] in now.events.values():
            return None
        return Call("add_event", {"day": day, "hour": hour, "title": title})

    text = f'Make an appointment "{title}" at the first free hour of day {day} (hours begin at 8).'
    return Errand(text, next_call)


def transfer(rng: np.random.Generator, world: World) -> Errand:
    """Transfer money until an account holds a sum."""
    source, target = (str(name) for name in rng.permutation(ACCOUNTS)[:2])
    # Within the balance, so that one transfer is enough and legal.
    amount = random_int(rng, 1, world.balances[source])
    goal = world.balances[target] + amount

    def next_call(now: World) -> Call | None:
        # The goal is a sum, not an amount: a player has to look up the balance.
        lacking = goal - now.balances[target]
        arguments = {"source": source, "target": target, "amount": lacking}
        return Call("transfer", arguments) if lacking > 0 else None

    text = f"Transfer money from {source} to {target}, so that {target} holds exactly {goal}."
    return Errand(text, next_call)


def buy(rng: np.random.Generator, world: World) -> Errand:
    """Buy some of the cheapest or the most expensive item of a kind."""
    kind = pick(rng, sorted({kind for kind, _ in ITEMS.values()}))
    choose, word = pick(rng, ((min, "cheapest"), (max, "dearest")))
    of_kind = {name: price for name, (other, price) in ITEMS.items() if other == kind}
    item, quantity = choose(of_kind, key=of_kind.__getitem__), random_int(rng, 1, 9)

    def next_call(now: World) -> Call | None:
        if [item, quantity] in now.orders:
            return None
        if now.cart == {item: quantity}:
            return Call("check_out", {})
        return Call("put_in_cart", {"item": item, "quantity": quantity})

    return Errand(f"Buy {quantity} of the {word} {kind} there is.", next_call)


def first_free(world: World, day: int) -> int:
    """The first hour of a day without an appointment."""
    taken = {event[1] for event in world.events.values() if event[0] == day}
    return next(hour for hour in HOURS if hour not in taken)


# An episode has at most one errand per kind, because two of one kind may conflict.
KINDS: Mapping[str, tuple[Callable[[np.random.Generator, World], Errand], ...]] = {
    "calendar": (cancel, move, add),
    "bank": (transfer,),
    "shop": (buy,),
}


HOURS = range(8, 18)
DAYS = range(1, 8)
_PRICES = {
    "blue pen": 2, "gel pen": 3, "fountain pen": 19,
    "ruled notebook": 5, "plain notebook": 4, "leather notebook": 25,
    "desk lamp": 30, "clip lamp": 12, "floor lamp": 55,
    "tin mug": 7, "glass mug": 9, "stone mug": 14,
}  # fmt: skip
# Name of an item -> its kind and price.
ITEMS: Mapping[str, tuple[str, int]] = {
    name: (name.split()[-1], price) for name, price in _PRICES.items()
}


class World:
    """A week of appointments, bank accounts, and a shop.

    events: number -> [day, hour, title].
    balances: account -> amount.
    cart: item -> quantity.
    orders: [item, quantity] of each purchase.
    """

    def __init__(self) -> None:
        self.events: dict[int, list[int | str]] = {}
        self.balances: dict[str, int] = {}
        self.cart: dict[str, int] = {}
        self.orders: list[list[str | int]] = []

    def state(self) -> tuple[object, ...]:
        """The parts that are compared: events without their numbers, balances, cart, orders."""
        # Numbers depend on the order of the calls, which is free.
        events = sorted(self.events.values(), key=str)
        return events, self.balances, self.cart, sorted(self.orders, key=str)

    def list_events(self, day: int) -> str:
        """List the appointments of a day, with their numbers.

        day: from 1 to 7
        """
        lines = [f"{n}: {e[1]}:00 {e[2]}" for n, e in sorted(self.events.items()) if e[0] == day]
        return "\n".join(lines) or "no appointments"

    def add_event(self, day: int, hour: int, title: str) -> str:
        """Make an appointment of one hour.

        day: from 1 to 7
        hour: from 8 to 17
        title: what it is
        """
        self._check_free(day, hour)
        number = max(self.events, default=0) + 1
        self.events[number] = [day, hour, title]
        return f"made appointment {number}"

    def move_event(self, number: int, day: int, hour: int) -> str:
        """Move an appointment.

        number: its number
        day: the new day, from 1 to 7
        hour: the new hour, from 8 to 17
        """
        event = self._event(number)
        self._check_free(day, hour)
        # The number stays, so that later calls still find the appointment.
        event[:2] = [day, hour]
        return f"moved appointment {number}"

    def cancel_event(self, number: int) -> str:
        """Cancel an appointment.

        number: its number
        """
        self._event(number)
        del self.events[number]
        return f"cancelled appointment {number}"

    def list_accounts(self) -> str:
        """List the bank accounts with what is in them."""
        return "\n".join(f"{name}: {amount}" for name, amount in self.balances.items())

    def transfer(self, source: str, target: str, amount: int) -> str:
        """Transfer money between two accounts.

        source: the account it is taken from
        target: the account it goes to
        amount: a whole number, at least 1
        """
        for name in (source, target):
            if name not in self.balances:
                raise ValueError(f"there is no account {name!r}")
        if not 1 <= amount <= self.balances[source] or source == target:
            raise ValueError(f"{amount} cannot be taken from {source} to {target}")
        self.balances[source] -= amount
        self.balances[target] += amount
        return f"transferred {amount} from {source} to {target}"

    def find_items(self, kind: str) -> str:
        """List what the shop has of a kind, with prices.

        kind: pen, notebook, lamp or mug
        """
        lines = [f"{name}: {price}" for name, (other, price) in ITEMS.items() if other == kind]
        return "\n".join(lines) or "nothing of that kind"

    def put_in_cart(self, item: str, quantity: int) -> str:
        """Set how many of an item are in the cart.

        item: its name
        quantity: 0 takes it out
        """
        if item not in ITEMS or not 0 <= quantity <= 99:
            raise ValueError(f"there are not {quantity} of {item!r}")
        self.cart[item] = quantity
        # Without items of quantity 0, because carts are compared.
        self.cart = {name: count for name, count in self.cart.items() if count}
        return f"the cart holds {self.cart}"

    def check_out(self) -> str:
        """Buy what is in the cart."""
        if not self.cart:
            raise ValueError("the cart is empty")
        total = sum(ITEMS[name][1] * count for name, count in self.cart.items())
        self.orders += [[name, count] for name, count in sorted(self.cart.items())]
        self.cart = {}
        return f"bought for {total}"

    def _event(self, number: int) -> list[int | str]:
        if number not in self.events:
            raise ValueError(f"there is no appointment {number}")
        return self.events[number]

    def _check_free(self, day: int, hour: int) -> None:
        if day not in DAYS or hour not in HOURS:
            raise ValueError(f"day {day}, {hour}:00 is no time for an appointment")
        taken = [event[2] for event in self.events.values() if event[:2] == [day, hour]]
        if taken:
            raise ValueError(f"day {day}, {hour}:00 is taken by {taken[0]}")


# The methods in their order, which is that of the tools in the prompt.
CALLS = tuple(name for name in vars(World) if name[0] != "_" and name != "state")
FINISH = "finish"
# Arguments of `finish` are ignored: models like to add a summary.
SCHEMAS: Schemas = {
    **schemas_of(getattr(World(), name) for name in CALLS),
    FINISH: ("Say that all is done.", {}),
}
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
    """

    action_tools = tuple(
        tool_schema(name, purpose, schema or {"type": "object", "properties": {}})
        for name, (purpose, schema) in SCHEMAS.items()
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
        self.world = World()
        self.goal = World()

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Draw a world and errands; the goal is the state after the oracle's calls."""
        self._seed = draw_in_split(
            lambda: int(self.np_random.integers(2**31)),
            self._split,
            lambda seed: text_of(task(seed, self._count)[1]),
        )
        self._turns_left = self._turns
        self.world, errands = task(self._seed, self._count)
        self.goal = copy.deepcopy(self.world)
        while call := next_call(errands, self.goal):
            result_of(self.goal, call)
        return text_of(errands), PROMPT.format(tools=listed(SCHEMAS), form=FORM)

    def turn(self, action: str) -> Turn:
        """Execute the call."""
        # Before the call, so that a failed call counts too.
        self._turns_left -= 1
        calls, problem = calls_in(action)
        # The last one counts, because models write drafts first.
        call = calls[-1] if calls else Call("", {})
        if not problem:
            problem = problem_with(call, SCHEMAS) if calls else f"a tool call is {FORM}"
        if call.name == FINISH:
            return self._ended(illegal=False)
        text = f"Error: {problem}" if problem else result_of(self.world, call)
        if not self._turns_left:
            return self._ended(illegal=bool(problem), finished=False)
        return proceed(f"{text}\nCalls left: {self._turns_left}", info={"illegal": bool(problem)})

    def _ended(self, *, illegal: bool, finished: bool = True) -> Turn:
        pairs = zip(_PARTS, self.world.state(), self.goal.state(), strict=True)
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
        return (next_call(errands, self.world) or Call(FINISH, {})).as_json()


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


def next_call(errands: list[Errand], world: World) -> Call | None:
    """The next call of the first errand that is not done; None if all are done."""
    calls = (errand.next_call(world) for errand in errands)
    return next((call for call in calls if call), None)
