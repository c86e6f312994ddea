"""The shop of CustomerDesk: orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np

from ludic_gym.envs.core.base import between, pick
from ludic_gym.envs.tools.calls import Call
from ludic_gym.envs.worlds.desk.base import Desk, Record, Wish

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
            "days_since_delivery": between(rng, 1, 42) if delivered else 0,
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
