"""`ludic leaderboard`: rank any number of benchmarks, by environment.

    $ ludic leaderboard results
    ludic/Arithmetic-v0: difference from oracle
    run    rank episodes   rate           95%   diff              95%       p
    oracle    1       20 100.0% [83.9, 100.0]
    random    2       20   0.0%   [0.0, 16.1] -1.000 [-1.000, -1.000] 1.9e-06

The ranks and the differences are those of `ludic_gym.bench.comparison`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ludic_gym.bench.comparison import Board, Measure, board_table, boards, boards_json, run_of
from ludic_gym.bench.folder import REQUEST, finite
from ludic_gym.commands.arguments import option, parse, print_json, print_table
from ludic_gym.errors import ConfigError
from ludic_gym.view.leaderboard import leaderboard_html, leaderboard_markdown
from ludic_gym.view.page import run_folders, run_names

EXAMPLES = """\
ludic leaderboard results
ludic leaderboard results/one results/two --measure reward
ludic leaderboard results --out leaderboard.html"""


@dataclass(frozen=True, kw_only=True)
class LeaderboardArgs:
    """Rank benchmarks by environment, with intervals and paired differences from the best.

    Only runs with the same arguments and rows of an environment are ranked together.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], option("DIR ...")]
    """Folders of `ludic bench --out`, or folders that hold some."""
    measure: Measure = "success"
    """The quantity that ranks."""
    out: Annotated[Path | None, option("FILE")] = None
    """Write a file in place of the table: a page (.html), Markdown (.md) or JSON (.json)."""
    json: bool = False
    """Print JSON."""


def main(argv: list[str]) -> int:
    """Run `ludic leaderboard`; 0.

    Raises ConfigError for folders that hold no benchmark, and for a file of another kind.
    """
    args = parse(LeaderboardArgs, argv, command="leaderboard", examples=EXAMPLES)
    # Before the runs are read, which may take long.
    if args.out is not None and args.out.suffix not in WRITERS:
        raise ConfigError(f"--out {args.out} ends in none of {', '.join(WRITERS)}")
    folders = [folder for folder in run_folders(args.runs) if (folder / REQUEST).exists()]
    if not folders:
        raise ConfigError(f"{args.runs[0]} holds training runs only; name runs of `ludic bench`")
    names = run_names(folders)
    runs = [run_of(folder, name) for folder, name in zip(folders, names, strict=True)]
    found = boards(runs, measure=args.measure)
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(WRITERS[args.out.suffix](found), encoding="utf-8")
        if not args.json:
            print(args.out)
            return 0
    if args.json:
        print_json(boards_json(found))
        return 0
    for board in found:
        headings, *rows = board_table(board)
        title = f"{board.setup}: difference from {board.baseline}"
        print_table(headings, rows, title=title, numbers=True)
    return 0


def _json(found: Sequence[Board]) -> str:
    return json.dumps(finite(boards_json(found)), indent=1) + "\n"


WRITERS = {".html": leaderboard_html, ".md": leaderboard_markdown, ".json": _json}
