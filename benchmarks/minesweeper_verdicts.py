"""Write the verdicts of all boards of the sizes of Minesweeper that are in files (CPU-minute).

python benchmarks/minesweeper_verdicts.py
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ludic_gym.envs.games.minesweeper import SOLVED, mask_of, solved_start, verdicts_path


def boards_by_number(size: int, mines: int) -> list[tuple[int, ...]]:
    """The cells with a mine of each board, the last cell first, in the order of `verdicts`."""
    return list(combinations(reversed(range(size * size)), mines))[::-1]


def main() -> None:
    """Solve all boards."""
    for size, mines in SOLVED:
        # Past the cache of boards: each comes once.
        solve = solved_start.__wrapped__
        fair = [bool(solve(size, mask_of(board))) for board in boards_by_number(size, mines)]
        np.packbits(fair).tofile(path := verdicts_path(size, mines))
        print(f"{path.name}: {sum(fair):,} of {len(fair):,} boards are fair")


if __name__ == "__main__":
    main()
