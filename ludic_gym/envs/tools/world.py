"""The state of ToolCalls, and the calls that read and change it.

The docstrings of the calls are the tool descriptions that models see: they are part of the
benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ludic_gym.tools.schema import JSONSchema, described, parameters_schema

HOURS = range(8, 18)
DAYS = range(1, 8)
_PRICES = {
    "blue pen": 2, "gel pen": 3, "fountain pen": 19,
    "ruled notebook": 5, "plain notebook": 4, "leather notebook": 25,
    "desk lamp": 30, "clip lamp": 12, "floor lamp": 55,
    "tin mug": 7, "glass mug": 9, "stone mug": 14,
}  # fmt: skip
# Name of an item -> its kind and price.
ITEMS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {name: (name.split()[-1], price) for name, price in _PRICES.items()}
)


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
# Parameters and description of each call.
SCHEMAS: Mapping[str, JSONSchema] = MappingProxyType(
    {name: parameters_schema(getattr(World(), name)) for name in CALLS}
)
PURPOSES: Mapping[str, str] = MappingProxyType(
    {
        name: described(getattr(World, name).__doc__, tuple(SCHEMAS[name]["properties"]))[0]
        for name in CALLS
    }
)
