"""Tower of Hanoi: carry a tower to another peg, disk by disk (É. Lucas, 1883)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ludic_gym.envs.core.base import checked_choice, pick
from ludic_gym.envs.core.solitaire import Outcome, SolitaireEnv, checked_range

PEGS = "ABC"
GOAL = "C"
STARTS = ("tower", "random")


class TowerOfHanoiEnv(SolitaireEnv):
    """Carry all disks to peg C, one at a time, never a larger one onto a smaller one.

    disks: how many there are, 1 the smallest.
    start: "tower" for all disks on A, or "random" for any other legal position, by the seed.
    turns: how many moves there are; 0 for twice as many as the tower needs.

    Observation: the disks of each peg, the lowest first. Action: two pegs, from and to.

        A: 2 1
        B:
        C:
    AB
        A: 2
        B: 1
        C:
    """

    def __init__(
        self,
        disks: int = 3,
        start: Literal["tower", "random"] = "tower",
        turns: int = 0,
        render_mode: str | None = None,
    ) -> None:
        self._disks = checked_range("disks", disks, 1, 10)
        super().__init__(turns or 2 * (2**disks - 1), render_mode)
        self._random = checked_choice("start", start, STARTS) == "random"

    def _prompt(self) -> str:
        return (
            "Carry all disks to peg C. Move the top disk (the last number) of one peg to another, "
            f"never onto a smaller number. Moves: {self._turns}. Reply with just the two pegs, "
            "from and to, such as AB."
        )

    def _deal(self, rng: np.random.Generator) -> None:
        """The peg of every disk, the smallest disk first; each choice of pegs is legal."""
        self._pegs = "A" * self._disks
        while self._random:
            self._pegs = "".join(pick(rng, PEGS) for _ in range(self._disks))
            if self._pegs != GOAL * self._disks:
                return

    def _play(self, action: str) -> Outcome:
        move = action.upper()
        if move not in self._legal():
            return "illegal"
        disk = self._pegs.index(move[0])
        self._pegs = self._pegs[:disk] + move[1] + self._pegs[disk + 1 :]
        return "win" if self._pegs == GOAL * self._disks else ""

    def _view(self) -> str:
        return "\n".join(f"{peg}: {self._stack(peg)}".rstrip() for peg in PEGS)

    def _stack(self, peg: str) -> str:
        disks = (str(i + 1) for i in reversed(range(self._disks)) if self._pegs[i] == peg)
        return " ".join(disks)

    def _legal(self) -> tuple[str, ...]:
        # An empty peg holds as if a disk larger than all lay there.
        top = {peg: (self._pegs + peg).index(peg) for peg in PEGS}
        pairs = ((a, b) for a in PEGS for b in PEGS)
        return tuple(a + b for a, b in pairs if top[a] < top[b])

    def _best(self) -> str:
        """The first move of the shortest way."""
        goal, move = GOAL, ""
        for disk in reversed(range(self._disks)):
            peg = self._pegs[disk]
            if peg != goal:
                move = peg + goal
                # All smaller disks have to be out of its way first.
                goal = next(other for other in PEGS if other not in (peg, goal))
        return move
