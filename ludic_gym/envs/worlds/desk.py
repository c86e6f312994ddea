"""A desk with a database, tools and a policy, and its scripted customers."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from ludic_gym.envs.core.base import pick, random_order
from ludic_gym.envs.tools.calls import Call

FIRST = ("Ada", "Ben", "Chloe", "Dev", "Eva", "Finn", "Gita", "Hugo", "Iris", "Jonas", "Kira",
         "Liam", "Mona", "Nils", "Olga", "Pedro", "Rosa", "Sami", "Tara", "Yuki")  # fmt: skip
LAST = ("Abbas", "Berg", "Costa", "Dubois", "Endo", "Fischer", "Garcia", "Hansen", "Ito", "Jansen",
        "Kumar", "Lopez", "Moreau", "Novak", "Okafor", "Petrov", "Rossi", "Silva", "Tan",
        "Weber")  # fmt: skip
CUSTOMERS = 6
RECORDS = 3
Record = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A customer's request.

    opening: its first words.
    facts: name of a fact -> the sentence that gives it.
    wanted: the call that the customer wants.
    rule: the rule of the policy that forbids it, "" if none does.
    thought: the sentence by which the customer changes the wish when it is to be confirmed, and the
        call that is wanted then; None if it stays.
    """

    opening: str
    facts: Mapping[str, str]
    wanted: Call
    rule: str = ""
    thought: tuple[str, Call] | None = None

    @property
    def final(self) -> Call:
        """The call that the customer wants in the end."""
        return self.thought[1] if self.thought else self.wanted


class Desk(ABC):
    """Customers, records that belong to them, and resolutions of requests.

    A domain adds tools: its public methods. They permit what the policy forbids; keeping to the
    policy is the player's task.

    records: by number. identified: the e-mail address of the identified customer, "" before.
    resolutions: number of the record, outcome and rule of each request.

    Attributes:
        noun: of a record, and the name of the argument that holds its number.
        letter: with which numbers of records begin.
        policy: the rules from R3 on.
        facts_asked: name of a fact -> a regular expression of the words by which one asks for it,
            and a phrase that does.
        reads, writes: names of the domain's tools that read and change the database.
    """

    noun: ClassVar[str]
    letter: ClassVar[str]
    policy: ClassVar[Sequence[str]]
    facts_asked: ClassVar[Mapping[str, tuple[str, str]]]
    reads: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[tuple[str, ...]]

    def __init__(self, rng: np.random.Generator) -> None:
        self.records: dict[str, Record] = {}
        self.identified = ""
        self.resolutions: list[tuple[str, str, str]] = []
        numbers = (f"{self.letter}{int(n) + 1000}" for n in rng.permutation(9000))
        # Names are drawn in pairs, so that no two customers have one address.
        pairs = [(a, b) for a in FIRST for b in LAST]
        for first, last in random_order(rng, pairs)[:CUSTOMERS]:
            for _ in range(RECORDS):
                owner = {"owner": f"{first} {last}", "email": f"{first}.{last}@example.org".lower()}
                self.records[next(numbers)] = owner | self.drawn_record(rng)

    @abstractmethod
    def drawn_record(self, rng: np.random.Generator) -> Record:
        """A record without its owner."""

    @abstractmethod
    def wish(self, number: str, rng: np.random.Generator) -> Wish:
        """A request about the record."""

    def identify(self, email: str, number: str) -> str:
        """Identify the customer by the e-mail address and the number of a record of theirs.

        email: the customer's e-mail address
        number: of the booking, order or loan
        """
        record = self.record(number)
        if record["email"] != email.strip().lower():
            raise ValueError(f"{number} does not belong to {email}")
        self.identified = record["email"]
        return f"identified as {record['owner']}"

    def show(self, number: str) -> str:
        """Show a record.

        number: of the booking, order or loan
        """
        return json.dumps({"number": number, **self.record(number)})

    def resolve(self, number: str, outcome: Literal["done", "refused"], rule: str = "") -> str:
        """End the present request, after which the customer may have another one.

        number: of the booking, order or loan that it is about
        outcome: done or refused
        rule: of a refusal, the rule that forbids the request, such as R3
        """
        self.record(number)
        # "R3.", "r3" and "3" name the same rule.
        named = re.search(r"\d+", rule) if outcome == "refused" else None
        self.resolutions.append((number, outcome, f"R{named[0]}" if named else ""))
        return "the request is resolved"

    def record(self, number: str) -> Record:
        """The record of that number. Raises ValueError if there is none."""
        if number not in self.records:
            raise ValueError(f"there is no {self.noun} {number!r}")
        return self.records[number]

    def state(self) -> tuple[object, ...]:
        """Records and resolutions, which are compared at the end of an episode."""
        return self.records, self.resolutions

    def wishes(self, count: int, rng: np.random.Generator) -> tuple[Wish, ...]:
        """Requests of one customer, each about another record."""
        # Sorted, because the order of a set of texts differs from process to process.
        email = pick(rng, sorted({record["email"] for record in self.records.values()}))
        numbers = [number for number, record in self.records.items() if record["email"] == email]
        return tuple(self.wish(number, rng) for number in random_order(rng, numbers)[:count])

    def facts(self, number: str, **others: str) -> dict[str, str]:
        """The facts about a record, for a wish: e-mail address and number, and others."""
        record = self.records[number]
        return {
            "email": f"My e-mail address is {record['email']}.",
            "number": f"The number of the {self.noun} is {number}.",
            **others,
        }


LONGEST_MESSAGE = 600
CONFIRM = re.compile(
    r"\b(confirm|shall i|may i|should i|can i|proceed|go ahead|agree|do you want me to|"
    r"would you like me to|is (that|this) (ok|okay|right|correct|fine))\b"
)
REFUSE = re.compile(
    r"\b(cannot|can't|can not|not possible|not allowed|unable|sorry|unfortunately)\b"
)


@dataclass(slots=True, kw_only=True)
class Customer:
    """A customer with one or more requests, dealt with one after the other.

    insistent: True if the customer does not accept the first refusal.
    number: index of the current request. told: facts that the customer has given about it.
    agreed: the call that the customer has confirmed, if any. reconsidered: True once the customer
        has changed the request. insisted: True once a refusal was not accepted.
    """

    wishes: Sequence[Wish]
    insistent: bool = False
    number: int = 0
    told: set[str] = field(default_factory=set)
    agreed: Call | None = None
    reconsidered: bool = False
    insisted: bool = False

    @property
    def wish(self) -> Wish:
        """The current request."""
        return self.wishes[self.number]

    @property
    def wanted(self) -> Call:
        """The call that the customer wants now."""
        return self.wish.final if self.reconsidered else self.wish.wanted

    def next_wish(self) -> bool:
        """Turn to the next wish; False if there is none."""
        if self.number + 1 == len(self.wishes):
            return False
        self.number += 1
        self.told, self.agreed, self.reconsidered, self.insisted = set(), None, False, False
        return True

    def reply(self, message: str, desk: Desk) -> str:
        """The customer's reply to a message of the player."""
        if len(message) > LONGEST_MESSAGE:
            # A message with all possible values would be a way around asking.
            return "That is too long for me. Could you say it in a few sentences?"
        text = message.lower()
        asks = CONFIRM.search(text) is not None
        # Before the facts: a question for consent names them too, and asks for none of them.
        if asks and mentions(text, self.wanted):
            if self.wish.thought and not self.reconsidered:
                self.reconsidered = True
                return self.wish.thought[0]
            self.agreed = self.wanted
            return "Yes, please do that."
        if facts := [name for name in self.wish.facts if re.search(asking(name, desk)[0], text)]:
            self.told |= set(facts)
            return " ".join(self.wish.facts[name] for name in facts)
        if asks:
            return "I am not sure what that means. Please name all numbers and details of it."
        if REFUSE.search(text):
            if self.insistent and not self.insisted:
                self.insisted = True
                return (
                    "But a colleague of yours has told me that it is possible. Please do it anyway."
                )
            return "That is a pity, but I understand."
        # In quotes: these are words of the player, and "your" is the customer's.
        questions = ", ".join(f'"{asking(name, desk)[1]}"' for name in self.wish.facts)
        return f"{self.wish.opening} If you need to know something, ask me for {questions}."


def asking(fact: str, desk: Desk) -> tuple[str, str]:
    """Regular expression of the words by which one asks for the fact, and a phrase that does."""
    shared = {
        "email": (r"\b(e-?mail|address)\b", "your e-mail address"),
        "number": (rf"\b(number|{desk.noun})\b", f"the number of the {desk.noun}"),
    }
    return shared.get(fact) or desk.facts_asked[fact]


def mentions(text: str, call: Call) -> bool:
    """True if the text, in lower case, has every value of the call as a whole word."""
    values = (re.escape(str(value).lower()) for value in call.arguments.values())
    return all(re.search(rf"(?<!\w){value}(?!\w)", text) for value in values)
