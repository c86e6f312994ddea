"""Tower of Hanoi: carry a tower to another peg, disk by disk (É. Lucas, 1883)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ludic_gym.envs.core.base import checked_choice, checked_range, pick
from ludic_gym.envs.core.solitaire import Outcome, SolitaireEnv
from ludic_gym.envs.core.splits import Split
from ludic_gym.errors import ConfigError

PEGS = "ABC"
GOAL = "C"
STARTS = ("tower", "random")


class TowerOfHanoiEnv(SolitaireEnv):
    """Carry all disks to peg C, one at a time, never a larger one onto a smaller one.

    - Observation: the disks of each peg, the lowest first; disk 1 is the smallest.
    - Action: two pegs, from and to, in either case.
    - Reward and info: see `SolitaireEnv`.

    Args:
        disks: number of disks.
        start: "tower" for all disks on A, or "random" for any legal position but the goal.
        turns: number of moves; 0 for twice as many as the tower needs.
        split: with start="random", "train" and "test" have no first position in common; one in five
            is in "test".
        render_mode: "ansi", "html" or None.

    ```text
    A: 2 1
    B:
    C:
    > AB
    A: 2
    B: 1
    C:
    ```
    """

    def __init__(
        self,
        disks: int = 3,
        start: Literal["tower", "random"] = "tower",
        turns: int = 0,
        split: Split = "all",
        render_mode: str | None = None,
    ) -> None:
        self._disks = checked_range("disks", disks, 1, 10)
        super().__init__(turns or 2 * (2**disks - 1), render_mode, split=split)
        self._random = checked_choice("start", start, STARTS) == "random"
        if split != "all" and not self._random:
            raise ConfigError(
                f"start='tower' is one position, which has no split={split!r}: give start='random'"
            )
        self.prompt = (
            "Carry all disks to peg C. Move the top disk (the last number) of one peg to another, "
            f"never onto a smaller number. You have {self.turns} moves. Reply with just the two "
            "pegs, from and to, such as AB."
        )

    def deal(self, rng: np.random.Generator) -> None:
        """Choose the peg of each disk."""
        # The smallest disk first; any assignment of pegs is a legal position.
        self._pegs = "A" * self._disks
        while self._random:
            self._pegs = "".join(pick(rng, PEGS) for _ in range(self._disks))
            if self._pegs != GOAL * self._disks:
                return

    def move(self, action: str) -> Outcome:
        """Move a disk."""
        move = action.upper()
        if move not in self.allowed_actions():
            return "illegal"
        disk = self._pegs.index(move[0])
        self._pegs = self._pegs[:disk] + move[1] + self._pegs[disk + 1 :]
        return "win" if self._pegs == GOAL * self._disks else ""

    def view(self) -> str:
        """The pegs and their disks."""
        return "\n".join(f"{peg}: {self._stack(peg)}".rstrip() for peg in PEGS)

    def _stack(self, peg: str) -> str:
        disks = (str(i + 1) for i in reversed(range(self._disks)) if self._pegs[i] == peg)
        return " ".join(disks)

    def allowed_actions(self) -> tuple[str, ...]:
        """Pairs of pegs between which a disk can move."""
        # An empty peg counts as one with a disk larger than all.
        top = {peg: (self._pegs + peg).index(peg) for peg in PEGS}
        pairs = ((a, b) for a in PEGS for b in PEGS)
        return tuple(a + b for a, b in pairs if top[a] < top[b])

    def best_action(self) -> str:
        """The first move of the shortest solution."""
        goal, move = GOAL, ""
        # From the largest disk down: the last one that is not on its peg is the one to move now.
        for disk in reversed(range(self._disks)):
            peg = self._pegs[disk]
            if peg != goal:
                move = peg + goal
                # All smaller disks have to be on the third peg first.
                goal = next(other for other in PEGS if other not in (peg, goal))
        return move
