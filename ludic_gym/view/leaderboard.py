"""Leaderboards as one static HTML page, or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ludic_gym.bench.comparison import Board, board_table
from ludic_gym.view.page import asset, content_policy

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>Leaderboard</title>
<style>{style}</style>
</head>
<body>
<header><h1>Leaderboard</h1></header>
<main>
<p>{about}</p>
{boards}
</main>
</body>
</html>
"""
ABOUT = (
    "Runs by environment, the best first. Intervals are 95%. The difference is from the best run, "
    "on the tasks that both finished; p is of the sign-flip test on these tasks."
)


def leaderboard_html(boards: Sequence[Board]) -> str:
    """A page of all boards, without scripts or external resources."""
    style = asset("view.css")
    return PAGE.format(
        policy=escape(content_policy(style=style)),
        style=style,
        about=escape(ABOUT),
        boards="\n".join(_section(board) for board in boards),
    )


def leaderboard_markdown(boards: Sequence[Board]) -> str:
    """A heading and a table for each board."""
    parts = ["# Leaderboard", ABOUT]
    for board in boards:
        headings, *rows = leaderboard_table(board)
        lines = [headings, ("---", *["---:"] * (len(headings) - 2), "---"), *rows]
        table = "\n".join(f"| {' | '.join(map(_markdown, line))} |" for line in lines)
        parts += [f"## {_markdown(str(board.setup))}", table]
    return "\n\n".join(parts) + "\n"


def leaderboard_table(board: Board) -> list[tuple[str, ...]]:
    """The rows of `board_table` with the served model, or the policy, in the last column."""
    headings, *rows = board_table(board)
    policies = [standing.policy for standing in board.standings]
    return [
        (*headings, "model"),
        *((*row, policy) for row, policy in zip(rows, policies, strict=True)),
    ]


def _section(board: Board) -> str:
    headings, *rows = leaderboard_table(board)
    name = escape(str(board.setup))
    # A narrow screen has no room for a line of headings, so each cell has its own.
    head = _row(headings, "th", [""] * len(headings))
    labels = [f' data-label="{escape(heading)}"' for heading in headings]
    body = "\n".join(_row(row, "td", labels) for row in rows)
    return (
        f"<h2>{name}</h2>\n"
        # Focusable, so that the keyboard can scroll a table wider than the screen.
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}">\n<table>\n'
        f"<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def _row(cells: Sequence[str], tag: str, attributes: Sequence[str]) -> str:
    # The first and the last column are texts; numbers are aligned to the right.
    kinds = ['class="text"', *[""] * (len(cells) - 2), 'class="text"']
    parts = [
        f"<{f'{tag} {kind}'.rstrip()}{attribute}>{escape(cell)}</{tag}>"
        for cell, kind, attribute in zip(cells, kinds, attributes, strict=True)
    ]
    return f"<tr>{''.join(parts)}</tr>"


def _markdown(text: str) -> str:
    r"""The text without effect on a table.

    >>> print(_markdown("a|b*"))
    a\|b\*
    """
    return "".join(f"\\{c}" if c in "\\|*_`<>[]#" else " " if c in "\r\n" else c for c in text)
