"""`ludic view`: make one HTML file of a run, or serve it while the run continues.

    $ ludic view results
    results/view.html, 0.1 MB: open it in a browser

The data of the page and its files are in `ludic_gym.view`.
"""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ludic_gym.commands.arguments import check_port, option, parse
from ludic_gym.view.page import view_of, write_page
from ludic_gym.view.server import serve
from ludic_gym.view.transcript import token_texts_from

EXAMPLES = """\
ludic view results
ludic view results/before results/after --out comparison.html
ludic view runs
ludic view runs/tic-tac-toe --serve --open"""


@dataclass(frozen=True, kw_only=True)
class ViewArgs:
    """Make one HTML file of benchmarks and training runs, to look at and to compare.

    The file needs no network. Press ? in it for its keys.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], option("DIR ...")]
    """Folders of `ludic bench --out` or `ludic train`, or folders that hold some."""
    out: Annotated[Path | None, option("FILE")] = None
    """The file; by default view.html in the first folder."""
    tokenizer: Annotated[Path | None, option("DIR")] = None
    """A model's folder; shows tokens as text, coloured by their log-probs."""
    most: int = 50_000
    """Limit of transcripts of each run; further episodes have their scores only."""
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
    texts = token_texts_from(args.tokenizer) if args.tokenizer else None

    # A function, because the server reads the run again after each change of its files.
    def current() -> object:
        return view_of(args.runs, most=args.most, token_texts=texts)

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
