"""The scripted customer of CustomerDesk, who gives facts only when asked for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ludic_gym.envs.tools.calls import Call
from ludic_gym.envs.worlds.desk.base import Desk, Wish

LONGEST_MESSAGE = 600
CONFIRM = re.compile(
    r"\b(confirm|shall i|may i|should i|can i|proceed|go ahead|agree|do you want me to|"
    r"would you like me to|is (that|this) (ok|okay|right|correct|fine))\b"
)
REFUSE = re.compile(
    r"\b(cannot|can't|can not|not possible|not allowed|unable|sorry|unfortunately)\b"
)
EMAIL = r"\b(e-?mail|address)\b"


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
            return self._confirmed()
        if facts := [name for name in self.wish.facts if re.search(pattern(name, desk), text)]:
            self.told |= set(facts)
            return " ".join(self.wish.facts[name] for name in facts)
        if asks:
            return "I am not sure what that means. Please name all numbers and details of it."
        if REFUSE.search(text):
            return self._refused()
        # In quotes: these are words of the player, and "your" is the customer's.
        known = ", ".join(f'"{phrase(name, desk)}"' for name in self.wish.facts)
        return f"{self.wish.opening} If you need to know something, ask me for {known}."

    def _confirmed(self) -> str:
        if self.wish.thought and not self.reconsidered:
            self.reconsidered = True
            return self.wish.thought[0]
        self.agreed = self.wanted
        return "Yes, please do that."

    def _refused(self) -> str:
        if self.insistent and not self.insisted:
            self.insisted = True
            return "But a colleague of yours has told me that it is possible. Please do it anyway."
        return "That is a pity, but I understand."


def pattern(fact: str, desk: Desk) -> str:
    """The regular expression of the words by which one asks for the fact."""
    if fact == "email":
        return EMAIL
    return rf"\b(number|{desk.noun})\b" if fact == "number" else desk.facts_asked[fact][0]


def phrase(fact: str, desk: Desk) -> str:
    """The fact in a question."""
    if fact == "email":
        return "your e-mail address"
    return f"the number of the {desk.noun}" if fact == "number" else desk.facts_asked[fact][1]


def mentions(text: str, call: Call) -> bool:
    """True if the text, in lower case, has every value of the call as a whole word."""
    values = (re.escape(str(value).lower()) for value in call.arguments.values())
    return all(re.search(rf"(?<!\w){value}(?!\w)", text) for value in values)
