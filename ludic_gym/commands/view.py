"""`ludic view`: benchmarks and training runs in one HTML file, or as tables in the terminal.

    $ ludic view results
    results/view.html, 0.1 MB: open it in a browser

    $ ludic view results/random results/oracle --text
    ludic/Arithmetic-v0: difference from random
    run    rank episodes   rate           95%   diff              95%       p
    oracle    1       20 100.0% [83.9, 100.0] +1.000 [+0.722, +1.000] 1.9e-06
    random    2       20   0.0%   [0.0, 16.1]

The data of the page and its files are in `ludic_gym.view`, ranks and differences in
`ludic_gym.bench.comparison`.
"""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ludic_gym.bench.comparison import (
    Measure,
    board_lines,
    board_table,
    boards,
    boards_json,
    run_of,
)
from ludic_gym.bench.folder import REQUEST
from ludic_gym.bench.report import note_lines
from ludic_gym.commands.arguments import check_port, option, parse, print_json, print_table, screen
from ludic_gym.errors import ConfigError
from ludic_gym.old_records import convert_records
from ludic_gym.terminal import printable
from ludic_gym.view.page import run_folders, run_names, serve, view_of, write_page
from ludic_gym.view.transcript import token_texts_from

EXAMPLES = """\
ludic view results
ludic view results/before results/after --text
ludic view results/before results/after --out comparison.html
ludic view results --regrade
ludic view runs/tic-tac-toe --serve --open
ludic view runs/tic-tac-toe --updates 0 400"""


@dataclass(frozen=True, kw_only=True)
class ViewArgs:
    """Make one HTML file of benchmarks and training runs, to look at and to compare.

    The file needs no network. Press ? in it for its keys.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], option("DIR ...")]
    """Folders of `ludic bench --out` or `ludic train`, or folders that hold some."""
    text: bool = False
    """Print ranks by environment, and differences from the first run, or from a folder's best."""
    regrade: bool = False
    """Play the recorded actions again, and print the episodes whose grade has changed."""
    json: bool = False
    """Print the numbers of --text or --regrade as JSON."""
    measure: Measure = "success"
    """The quantity that ranks in --text."""
    out: Annotated[Path | None, option("FILE")] = None
    """The file; by default view.html in the first folder."""
    tokenizer: Annotated[Path | None, option("DIR")] = None
    """A model's folder; shows tokens as text, coloured by their log-probs."""
    most: int = 50_000
    """Limit of transcripts of each run; further episodes of a benchmark have their scores only."""
    updates: tuple[int, ...] = ()
    """Updates of a training run in the page; if left out, as many as fit, evenly spread."""
    convert: bool = False
    """Write the records of these folders anew that an older version of Ludic has written."""
    open: bool = False
    """Open it in the browser."""
    serve: bool = False
    """Serve it on this machine instead, and update it during the run."""
    port: int = 0
    """Port of the server; 0 for any free one."""


def main(argv: list[str]) -> int:
    """Run `ludic view`; 0. With --serve, it runs until Ctrl-C, which raises KeyboardInterrupt.

    Raises ConfigError for folders of another kind, MissingPackage for --tokenizer without the
    trainer.
    """
    args = parse(ViewArgs, argv, command="view", examples=EXAMPLES)
    check_port(args.port)
    if args.convert:
        for path in (path for folder in args.runs for path in convert_records(folder)):
            print(f"{path}: converted")
        return 0
    if args.regrade:
        print_regraded(args)
        return 0
    if args.text or args.json:
        print_boards(args)
        return 0
    texts = token_texts_from(args.tokenizer) if args.tokenizer else None

    # A function, because the server reads the run again after each change of its files.
    def current() -> object:
        return view_of(args.runs, most=args.most, token_texts=texts, updates=args.updates)

    if args.serve:
        serve(current, args.runs, port=args.port, open_browser=args.open)
        return 0
    view = current()
    path = args.out or args.runs[0] / "view.html"
    write_page(path, view)
    print(f"{path}, {path.stat().st_size / 1e6:.1f} MB: open it in a browser")
    if args.open:
        # A file's address is absolute.
        webbrowser.open(path.resolve().as_uri())
    return 0


def print_regraded(args: ViewArgs) -> None:
    """Grade the episodes of all runs again, and print those whose grade has changed."""
    # Here, because the page is made without environments.
    from ludic_gym.view.regrade import regrade, regraded_lines

    grades = list(regrade(run_folders(args.runs)))
    (headings, *rows), summary = regraded_lines(grades)
    if args.json:
        changed = [dict(zip(headings, map(printable, row), strict=True)) for row in rows]
        print_json({"changed": changed, "summary": summary})
        return
    if rows:
        print_table(headings, [[printable(cell) for cell in row] for row in rows])
    print(summary)


def print_boards(args: ViewArgs) -> None:
    """Print the benchmarks by environment. Raises ConfigError without any."""
    folders = [folder for folder in run_folders(args.runs) if (folder / REQUEST).exists()]
    if not folders:
        raise ConfigError(f"{args.runs[0]} holds training runs only; name runs of `ludic bench`")
    names = run_names(folders)
    runs = [run_of(folder, name) for folder, name in zip(folders, names, strict=True)]
    # A run that is named first is the one before a change; the first in a folder is nothing.
    baseline = names[0] if folders[0] == args.runs[0] else None
    board_list = boards(runs, measure=args.measure, baseline=baseline)
    if args.json:
        print_json(boards_json(board_list))
        return
    for board in board_list:
        headings, *rows = board_table(board)
        print_table(headings, rows, title=str(board), numbers=True)
        for line in note_lines(standing.result for standing in board.standings):
            screen().print(line, markup=False)
        for line in board_lines(board):
            screen().print(line, style="red", markup=False)
