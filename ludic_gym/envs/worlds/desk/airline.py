"""The airline of CustomerDesk: flights and bookings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from ludic_gym.envs.core.base import between, pick
from ludic_gym.envs.tools.calls import Call
from ludic_gym.envs.worlds.desk.base import Desk, Record, Wish

FLIGHTS = 30
MOST_BAGS = {"economy": 2, "business": 4}


class Airline(Desk):
    """Bookings of flights."""

    noun = "booking"
    letter = "B"
    policy: ClassVar[Sequence[str]] = (
        "R3. A booking with a basic fare is not moved to another flight.",
        "R4. A booking that is checked in is not cancelled.",
        "R5. A booking has at most 2 bags in economy and 4 in business, in all.",
        "R6. No booking is moved to a flight that has no seat left.",
    )
    facts_asked: ClassVar[Mapping[str, tuple[str, str]]] = {
        "flight": (r"\bflights?\b", "the flight that you want"),
        "bags": (r"\b(bags?|luggage|baggage)\b", "how many bags you want to take"),
    }
    reads = ("show_flight",)
    writes = ("move_booking", "cancel_booking", "set_bags")

    def __init__(self, rng: np.random.Generator) -> None:
        numbers = [f"F{int(n) + 100}" for n in rng.permutation(900)[:FLIGHTS]]
        # Before the records, which are drawn on them.
        self.flights = {
            number: {"day": between(rng, 1, 28), "seats_left": max(0, between(rng, -4, 9))}
            for number in numbers
        }
        super().__init__(rng)

    def drawn_record(self, rng: np.random.Generator) -> Record:
        """A booking."""
        return {
            "flight": pick(rng, list(self.flights)),
            "cabin": pick(rng, ("economy", "business")),
            "fare": pick(rng, ("basic", "flexible")),
            "bags": between(rng, 0, 1),
            "checked_in": rng.random() < 0.4,
            "status": "booked",
        }

    def show_flight(self, flight: str) -> str:
        """Show the day of a flight and its free seats.

        flight: its number
        """
        self._check(flight)
        return json.dumps({"flight": flight, **self.flights[flight]})

    def move_booking(self, number: str, flight: str) -> str:
        """Move a booking to another flight.

        number: of the booking
        flight: number of the new flight
        """
        record = self.record(number)
        self._check(flight)
        record["flight"] = flight
        return f"booking {number} is on flight {flight}"

    def cancel_booking(self, number: str) -> str:
        """Cancel a booking.

        number: of the booking
        """
        self.record(number)["status"] = "cancelled"
        return f"booking {number} is cancelled"

    def set_bags(self, number: str, bags: int) -> str:
        """Set the number of bags of a booking.

        number: of the booking
        bags: how many, in all
        """
        self.record(number)["bags"] = bags
        return f"booking {number} has {bags} bags"

    def _check(self, flight: str) -> None:
        if flight not in self.flights:
            raise ValueError(f"there is no flight {flight!r}")

    def wish(self, number: str, rng: np.random.Generator) -> Wish:
        """A change of flight, a cancellation, or bags."""
        return pick(rng, (self._move, self._cancel, self._bags))(number, rng)

    def _move(self, number: str, rng: np.random.Generator) -> Wish:
        record = self.records[number]
        basic = record["fare"] == "basic"
        # A move to the same flight would change nothing.
        others = [flight for flight in self.flights if flight != record["flight"]]
        open_ = [flight for flight in others if self.flights[flight]["seats_left"]]
        # With both reasons, either rule would be a right answer.
        first, second = pick(rng, open_ if basic else others), pick(rng, open_)
        rule = "R3" if basic else "" if first in open_ else "R6"
        thought = None
        if not rule and first != second:
            call = Call("move_booking", {"number": number, "flight": second})
            thought = (f"Wait, I have looked again: I would rather take flight {second}.", call)
        return Wish(
            opening="I need to fly on another day than I have booked.",
            facts=self.facts(number, flight=f"I would like to take flight {first}."),
            wanted=Call("move_booking", {"number": number, "flight": first}),
            rule=rule,
            thought=thought,
        )

    def _cancel(self, number: str, rng: np.random.Generator) -> Wish:
        return Wish(
            opening="I cannot travel after all, so I want to cancel.",
            facts=self.facts(number),
            wanted=Call("cancel_booking", {"number": number}),
            rule="R4" if self.records[number]["checked_in"] else "",
        )

    def _bags(self, number: str, rng: np.random.Generator) -> Wish:
        most = MOST_BAGS[self.records[number]["cabin"]]
        bags = between(rng, 2, 5)
        thought = None
        if bags < most:
            call = Call("set_bags", {"number": number, "bags": most})
            thought = (f"Hold on, I have more to carry: {most} bags in all, please.", call)
        return Wish(
            opening="I have more luggage than I thought.",
            facts=self.facts(number, bags=f"I want to take {bags} bags in all."),
            wanted=Call("set_bags", {"number": number, "bags": bags}),
            rule="R5" if bags > most else "",
            thought=thought,
        )
