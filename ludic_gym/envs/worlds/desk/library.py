"""The library of CustomerDesk: loans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from ludic_gym.envs.core.base import between, pick
from ludic_gym.envs.tools.calls import Call
from ludic_gym.envs.worlds.desk.base import Desk, Record, Wish

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
            "renewals": between(rng, 0, 3),
            "reserved_by_another": rng.random() < 0.3,
            "fine": max(0, between(rng, -6, 9)),
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
