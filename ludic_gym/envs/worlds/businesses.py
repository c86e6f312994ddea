"""The desks of an airline, a library and a shop."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np

from ludic_gym.envs.core.base import pick, random_int
from ludic_gym.envs.tools.calls import Call
from ludic_gym.envs.worlds.desk import Desk, Record, Wish

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
            number: {"day": random_int(rng, 1, 28), "seats_left": max(0, random_int(rng, -4, 9))}
            for number in numbers
        }
        super().__init__(rng)

    def drawn_record(self, rng: np.random.Generator) -> Record:
        """A booking."""
        return {
            "flight": pick(rng, list(self.flights)),
            "cabin": pick(rng, ("economy", "business")),
            "fare": pick(rng, ("basic", "flexible")),
            "bags": random_int(rng, 0, 1),
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
        bags = random_int(rng, 2, 5)
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


TITLES = ("The Salt Road", "Nine Rivers", "A Quiet Engine", "Maps of Snow", "The Glass Orchard",
          "Letters to a Comet", "The Last Ferry", "Bread and Thunder")  # fmt: skip
BRANCHES = ("Harbour", "Market", "University", "Riverside", "Hillside")
MOST_RENEWALS = 2
HIGHEST_FINE = 5


class Library(Desk):
    """Loans of books."""

    noun = "loan"
    letter = "L"
    policy: ClassVar[Sequence[str]] = (
        "R3. A loan is renewed at most 2 times.",
        "R4. A loan is not renewed if another reader has reserved the book.",
        "R5. A fine of more than 5 euros is not waived.",
        "R6. The branch of a loan is not changed while a fine is open.",
    )
    facts_asked: ClassVar[Mapping[str, tuple[str, str]]] = {
        "branch": (r"\b(branch(es)?|where)\b", "the branch that you want"),
    }
    writes = ("renew_loan", "waive_fine", "change_branch")

    def drawn_record(self, rng: np.random.Generator) -> Record:
        """A loan."""
        return {
            "title": pick(rng, TITLES),
            "branch": pick(rng, BRANCHES),
            "renewals": random_int(rng, 0, 3),
            "reserved_by_another": rng.random() < 0.3,
            "fine": max(0, random_int(rng, -6, 9)),
        }

    def renew_loan(self, number: str) -> str:
        """Renew a loan by four weeks.

        number: of the loan
        """
        self.record(number)["renewals"] += 1
        return f"loan {number} is renewed"

    def waive_fine(self, number: str) -> str:
        """Waive the whole fine of a loan.

        number: of the loan
        """
        self.record(number)["fine"] = 0
        return f"the fine of loan {number} is waived"

    def change_branch(self, number: str, branch: str) -> str:
        """Change the branch to which the book of a loan is returned.

        number: of the loan
        branch: its name
        """
        if branch.capitalize() not in BRANCHES:
            raise ValueError(f"there is no branch {branch!r}; there are {', '.join(BRANCHES)}")
        self.record(number)["branch"] = branch.capitalize()
        return f"loan {number} is returned to {branch}"

    def wish(self, number: str, rng: np.random.Generator) -> Wish:
        """A renewal, a fine to waive, or another branch."""
        record = self.records[number]
        kinds = (
            (self._renew, self._fine, self._branch)
            if record["fine"]
            else (
                self._renew,
                self._branch,
            )
        )
        return pick(rng, kinds)(number, rng)

    def _renew(self, number: str, rng: np.random.Generator) -> Wish:
        record = self.records[number]
        often = record["renewals"] >= MOST_RENEWALS
        # With both reasons, either rule would be a right answer.
        if often:
            record["reserved_by_another"] = False
        return Wish(
            opening="I have not finished a book yet and need it for longer.",
            facts=self.facts(number),
            wanted=Call("renew_loan", {"number": number}),
            rule="R3" if often else "R4" if record["reserved_by_another"] else "",
        )

    def _fine(self, number: str, rng: np.random.Generator) -> Wish:
        return Wish(
            opening="I have got a fine, which I do not think is fair. Please waive it.",
            facts=self.facts(number),
            wanted=Call("waive_fine", {"number": number}),
            rule="R5" if self.records[number]["fine"] > HIGHEST_FINE else "",
        )

    def _branch(self, number: str, rng: np.random.Generator) -> Wish:
        record = self.records[number]
        others = [branch for branch in BRANCHES if branch != record["branch"]]
        branch, second = pick(rng, others), pick(rng, others)
        thought = None
        # A customer whose wish is refused is never asked to confirm it.
        if not record["fine"] and branch != second:
            call = Call("change_branch", {"number": number, "branch": second})
            thought = (f"Oh, no: the branch {second} is closer to my work, so take that.", call)
        return Wish(
            opening="I want to return a book somewhere else.",
            facts=self.facts(number, branch=f"I would like to return it to the branch {branch}."),
            wanted=Call("change_branch", {"number": number, "branch": branch}),
            rule="R6" if record["fine"] else "",
            thought=thought,
        )


ITEMS = ("jacket", "tent", "backpack", "sleeping bag", "raincoat", "fleece", "hammock", "poncho")
COLOURS = ("red", "blue", "green", "black", "orange", "grey")
DAYS = 30


class Retail(Desk):
    """Orders of a shop for outdoor clothes."""

    noun = "order"
    letter = "N"
    policy: ClassVar[Sequence[str]] = (
        "R3. Only an order with the status pending is cancelled.",
        "R4. An order is returned or exchanged within 30 days after its delivery, not later.",
        "R5. The money for a returned order goes back to the means of payment it came from.",
        "R6. An order is exchanged only for a colour that is in stock.",
    )
    facts_asked: ClassVar[Mapping[str, tuple[str, str]]] = {
        "colour": (r"\bcolou?rs?\b", "the colour that you want"),
        "refund": (
            r"\b(refund(ed)?|money|card|voucher|payment)\b",
            "how you want the money refunded",
        ),
    }
    writes = ("cancel_order", "exchange_order", "return_order")

    def drawn_record(self, rng: np.random.Generator) -> Record:
        """An order."""
        delivered = rng.random() < 0.7
        return {
            "item": pick(rng, ITEMS),
            "colour": pick(rng, COLOURS),
            "in_stock": [colour for colour in COLOURS if rng.random() < 0.75],
            "paid_by": pick(rng, ("card", "voucher")),
            "status": "delivered" if delivered else pick(rng, ("pending", "shipped")),
            "days_since_delivery": random_int(rng, 1, 42) if delivered else 0,
        }

    def cancel_order(self, number: str) -> str:
        """Cancel an order.

        number: of the order
        """
        self.record(number)["status"] = "cancelled"
        return f"order {number} is cancelled"

    def exchange_order(self, number: str, colour: str) -> str:
        """Exchange what was ordered for another colour.

        number: of the order
        colour: the new one
        """
        self.record(number)["colour"] = colour.lower()
        return f"order {number} is exchanged for {colour}"

    def return_order(self, number: str, refund_to: Literal["card", "voucher"]) -> str:
        """Take an order back and refund it.

        number: of the order
        refund_to: card or voucher
        """
        self.record(number).update(status="returned", refunded_to=refund_to)
        return f"order {number} is returned and refunded to the {refund_to}"

    def wish(self, number: str, rng: np.random.Generator) -> Wish:
        """A cancellation, an exchange or a return."""
        delivered = self.records[number]["status"] == "delivered"
        # An order on its way can be neither exchanged nor returned, for which there is no rule.
        kinds = (self._exchange, self._return) if delivered else (self._cancel,)
        return pick(rng, kinds)(number, rng)

    def _cancel(self, number: str, rng: np.random.Generator) -> Wish:
        return Wish(
            opening="I have ordered something by mistake. Please cancel it.",
            facts=self.facts(number),
            wanted=Call("cancel_order", {"number": number}),
            rule="" if self.records[number]["status"] == "pending" else "R3",
        )

    def _exchange(self, number: str, rng: np.random.Generator) -> Wish:
        record = self.records[number]
        others = [colour for colour in COLOURS if colour != record["colour"]]
        colour, late = pick(rng, others), record["days_since_delivery"] > DAYS
        # With both reasons, either rule would be a right answer.
        if late and colour not in record["in_stock"]:
            record["in_stock"].append(colour)
        rule = "R4" if late else "" if colour in record["in_stock"] else "R6"
        left = [one for one in others if one in record["in_stock"] and one != colour]
        thought = None
        if not rule and left:
            call = Call("exchange_order", {"number": number, "colour": left[0]})
            thought = (f"Hm, now that I think of it, {left[0]} would be nicer.", call)
        return Wish(
            opening="The colour does not suit me. Can I have another one?",
            facts=self.facts(number, colour=f"I would like it in {colour}."),
            wanted=Call("exchange_order", {"number": number, "colour": colour}),
            rule=rule,
            thought=thought,
        )

    def _return(self, number: str, rng: np.random.Generator) -> Wish:
        record = self.records[number]
        late = record["days_since_delivery"] > DAYS
        other = "voucher" if record["paid_by"] == "card" else "card"
        # With both reasons, either rule would be a right answer.
        to = record["paid_by"] if late or rng.random() < 0.7 else other
        return Wish(
            opening="I do not like what I have bought, and I want to send it back.",
            facts=self.facts(number, refund=f"Please refund it to my {to}."),
            wanted=Call("return_order", {"number": number, "refund_to": to}),
            rule="R4" if late else "" if to == record["paid_by"] else "R5",
        )
