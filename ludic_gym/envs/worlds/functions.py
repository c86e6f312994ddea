"""Groups of functions with a state, and the toolbox of an episode.

The docstrings of the functions are the descriptions that models see: they are part of the
benchmark. A function raises ValueError for a call that its state does not permit, which a player
reads as the call's result.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ludic_gym.envs.core.base import pick, random_int
from ludic_gym.envs.tools.calls import Call, Schemas, result_of, schemas_of

ROOMS = ("kitchen", "bedroom", "bathroom", "office", "hall", "cellar", "garage", "attic")
CITIES = ("Aarhus", "Basel", "Cork", "Delft", "Essen", "Faro", "Genoa", "Halle", "Izmir", "Jena")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
Day = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
SYMBOLS = ("ALPN", "BRKL", "CRVN", "DLTO", "EMBR", "FJRD", "GLDN", "HRBR")
PEOPLE = ("Ana", "Boris", "Chidi", "Dana", "Elif", "Femi", "Goran", "Hana")
LENGTHS = {"metre": 1.0, "kilometre": 1000.0, "mile": 1609.344, "foot": 0.3048, "inch": 0.0254}
Unit = Literal["metre", "kilometre", "mile", "foot", "inch"]


class Home:
    """Temperatures, lights and alarms of a house."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.degrees = {room: float(random_int(rng, 15, 25)) for room in ROOMS}
        self.lights = {room: rng.random() < 0.5 for room in ROOMS}
        self.alarms: list[tuple[int, int, str]] = []

    def state(self) -> object:
        """The values that are compared at the end of a request."""
        return self.degrees, self.lights, sorted(self.alarms)

    def read_temperature(self, room: str) -> str:
        """Read the temperature of a room, in degrees Celsius.

        room: its name in lower case
        """
        self._check(room)
        return f"{self.degrees[room]:g}"

    def set_temperature(self, room: str, degrees: float) -> str:
        """Set the temperature of a room.

        room: its name in lower case
        degrees: in degrees Celsius, from 5 to 30
        """
        self._check(room)
        if not 5 <= degrees <= 30:
            raise ValueError(f"{degrees:g} degrees are not between 5 and 30")
        self.degrees[room] = float(degrees)
        return f"the {room} is set to {degrees:g} degrees"

    def switch_light(self, room: str, on: bool) -> str:
        """Switch the light of a room on or off.

        room: its name in lower case
        on: true to switch it on
        """
        self._check(room)
        self.lights[room] = on
        return f"the light in the {room} is {'on' if on else 'off'}"

    def set_alarm(self, hour: int, minute: int, label: str = "alarm") -> str:
        """Set an alarm for tomorrow.

        hour: from 0 to 23
        minute: from 0 to 59
        label: a name for it
        """
        if not (0 <= hour <= 23 and 0 <= minute <= 59):
            raise ValueError(f"{hour}:{minute} is no time of day")
        # In lower case: labels are compared without regard to case.
        self.alarms.append((hour, minute, label.lower()))
        return f"the alarm is set for {hour}:{minute:02}"

    def _check(self, room: str) -> None:
        if room not in self.degrees:
            raise ValueError(f"there is no room {room!r}; there are {', '.join(ROOMS)}")


class Trains:
    """A timetable, and bookings."""

    def __init__(self, rng: np.random.Generator) -> None:
        # Number -> origin, destination, day, price. Two trains on each of some connections.
        self.trains: dict[int, tuple[str, str, str, int]] = {}
        numbers = iter(int(n) for n in 100 + rng.permutation(900)[:48])
        for _ in range(24):
            here = pick(rng, CITIES)
            there = pick(rng, [city for city in CITIES if city != here])
            day, price = pick(rng, DAYS), random_int(rng, 20, 90)
            # Other connections of the pair would make "the cheaper train" unclear.
            if any(train[:3] == (here, there, day) for train in self.trains.values()):
                continue
            self.trains[next(numbers)] = (here, there, day, price)
            # The second train is dearer, so that there is one cheapest.
            self.trains[next(numbers)] = (here, there, day, price + random_int(rng, 1, 30))
        self.bookings: dict[int, tuple[int, int, str]] = {}
        # Not from 1: a number of a booking is to be read from its result.
        self.last = random_int(rng, 1000, 8000)

    def state(self) -> object:
        """The bookings without their numbers, which depend on the order of calls."""
        return sorted(self.bookings.values())

    def find_trains(self, origin: str, destination: str, day: Day) -> str:
        """List the trains between two cities on a day, with their numbers and prices.

        origin: the city they leave from
        destination: the city they go to
        day: of the week
        """
        wanted = (origin, destination, day)
        offers = [f"train {n}: {t[3]} euros" for n, t in self.trains.items() if t[:3] == wanted]
        return "; ".join(sorted(offers)) or "there is no such train"

    def book_seats(
        self, train: int, seats: int, seat_class: Literal["first", "second"] = "second"
    ) -> str:
        """Book seats on a train.

        train: its number
        seats: how many, from 1 to 9
        seat_class: first or second
        """
        if train not in self.trains:
            raise ValueError(f"there is no train {train}")
        if not 1 <= seats <= 9:
            raise ValueError(f"{seats} seats cannot be booked, but 1 to 9 can")
        self.last += 1
        self.bookings[self.last] = (train, seats, seat_class)
        return f"booked {seats} on train {train}, {seat_class} class; booking number {self.last}"

    def cancel_booking(self, booking: int) -> str:
        """Cancel a booking.

        booking: its number
        """
        if booking not in self.bookings:
            raise ValueError(f"there is no booking {booking}")
        del self.bookings[booking]
        return f"booking {booking} is cancelled"


class Tasks:
    """A list of tasks by day of the week."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.tasks: dict[str, tuple[str, bool]] = {}

    def state(self) -> object:
        """The values that are compared at the end of a request."""
        return self.tasks

    def add_task(self, title: str, day: Day, urgent: bool = False) -> str:
        """Add a task to the list.

        title: what is to be done, in lower case
        day: of the week
        urgent: true for an urgent one
        """
        self.tasks[title.lower()] = (day, urgent)
        return f"added {title!r} for {day}"

    def list_tasks(self, day: Day) -> str:
        """List the tasks of a day.

        day: of the week
        """
        return "; ".join(title for title, task in self.tasks.items() if task[0] == day) or "none"

    def finish_task(self, title: str) -> str:
        """Mark a task as finished, which removes it.

        title: of the task
        """
        if title.lower() not in self.tasks:
            raise ValueError(f"there is no task {title!r}")
        del self.tasks[title.lower()]
        return f"finished {title!r}"


class Shares:
    """Shares, their prices and cash."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.prices = {symbol: random_int(rng, 5, 60) for symbol in SYMBOLS}
        self.owned = {symbol: random_int(rng, 5, 40) for symbol in SYMBOLS}

    def state(self) -> object:
        """The values that are compared at the end of a request."""
        return self.owned

    def share_price(self, symbol: str) -> str:
        """Get the price of a share, in euros.

        symbol: four capital letters
        """
        self._check(symbol)
        return str(self.prices[symbol])

    def buy_shares(self, symbol: str, count: int) -> str:
        """Buy shares.

        symbol: four capital letters
        count: how many, at least 1
        """
        self._check(symbol)
        if count < 1:
            raise ValueError(f"{count} shares cannot be bought")
        self.owned[symbol] += count
        return f"bought {count} {symbol} for {count * self.prices[symbol]} euros"

    def sell_shares(self, symbol: str, count: int) -> str:
        """Sell shares that are owned.

        symbol: four capital letters
        count: how many, at least 1
        """
        self._check(symbol)
        if not 1 <= count <= self.owned[symbol]:
            raise ValueError(f"{self.owned[symbol]} {symbol} are owned, {count} cannot be sold")
        self.owned[symbol] -= count
        return f"sold {count} {symbol} for {count * self.prices[symbol]} euros"

    def _check(self, symbol: str) -> None:
        if symbol not in self.prices:
            raise ValueError(f"there is no share {symbol!r}; there are {', '.join(SYMBOLS)}")


class Sums:
    """Calculations, without a state."""

    def __init__(self, rng: np.random.Generator) -> None:
        pass

    def state(self) -> object:
        """Nothing changes."""
        return None

    def convert_length(self, value: float, source: Unit, target: Unit) -> str:
        """Convert a length.

        value: the length in the source unit
        source: the unit it is given in
        target: the unit of the result
        """
        return f"{value * LENGTHS[source] / LENGTHS[target]:.6g}"

    def loan_payment(self, amount: float, rate: float, months: int) -> str:
        """Compute the monthly payment of a loan.

        amount: in euros
        rate: of interest per year, in percent
        months: the number of payments
        """
        if amount <= 0 or rate < 0 or not 1 <= months <= 1200:
            raise ValueError(f"no loan has amount {amount}, rate {rate} and {months} months")
        monthly = rate / 1200
        # The annuity formula; without interest its limit.
        share = monthly / (1 - (1 + monthly) ** -months) if monthly else 1 / months
        return f"{amount * share:.2f}"


class Mail:
    """Messages that are sent."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.sent: list[tuple[str, str]] = []

    def state(self) -> object:
        """The values that are compared at the end of a request."""
        return sorted(self.sent)

    def send_message(self, person: str, text: str) -> str:
        """Send a message.

        person: the name of the person who gets it
        text: the message
        """
        if person not in PEOPLE:
            raise ValueError(f"{person!r} is not in the address book: {', '.join(PEOPLE)}")
        # White space, case and a final mark make no other message.
        self.sent.append((person, " ".join(text.lower().split()).rstrip(".!")))
        return f"sent to {person}"


Group = Home | Trains | Tasks | Shares | Sums | Mail
GROUPS: dict[str, type[Group]] = {
    "home": Home,
    "trains": Trains,
    "tasks": Tasks,
    "shares": Shares,
    "sums": Sums,
    "mail": Mail,
}


# Function -> its group.
GROUP_OF: Mapping[str, str] = {
    name: group
    for group, kind in GROUPS.items()
    for name in vars(kind)
    if name[0] != "_" and name != "state"
}


SCHEMAS: Schemas = schemas_of(
    # Bound methods have no `self`; the generator only fills a state.
    getattr(GROUPS[group](np.random.default_rng(0)), name)
    for name, group in GROUP_OF.items()
)


class Toolbox:
    """The functions of some groups, and the groups' state."""

    def __init__(self, groups: Sequence[str], rng: np.random.Generator) -> None:
        self._groups = {name: GROUPS[name](rng) for name in groups}

    def functions(self) -> Schemas:
        """The schemas of the functions."""
        return {name: SCHEMAS[name] for name, group in GROUP_OF.items() if group in self._groups}

    def run(self, call: Call) -> str:
        """The result of a valid call; "Error: ..." where the state does not permit it."""
        return result_of(self._groups[GROUP_OF[call.name]], call)

    def state(self) -> list[object]:
        """The state of all groups, for comparisons."""
        return [group.state() for group in self._groups.values()]

    def group(self, name: str) -> Any:  # noqa: ANN401 (each group has its own attributes)
        """The group of that name."""
        return self._groups[name]


# Function -> the values of its optional arguments.
DEFAULTS: Mapping[str, Mapping[str, object]] = {
    name: {
        p.name: p.default
        for p in inspect.signature(getattr(GROUPS[group], name)).parameters.values()
        if p.default is not p.empty
    }
    for name, group in GROUP_OF.items()
}


def same_call(one: Call, other: Call) -> bool:
    """True if both call the same function with the same arguments.

    Texts are compared without regard to case and outer white space, numbers by value, and an
    argument that is left out has its default.
    """
    return one.name == other.name and _plain(one) == _plain(other)


def _plain(call: Call) -> dict[str, object]:
    """The arguments for a comparison, with defaults."""
    # An argument that is left out and one that equals its default are the same call.
    arguments = {**DEFAULTS[call.name], **call.arguments}
    return {
        name: value.strip().casefold() if isinstance(value, str) else value
        for name, value in arguments.items()
    }
