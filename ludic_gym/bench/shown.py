"""Results as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ludic_gym.bench.report import fault_lines, figure_lines, note_lines, result_table
from ludic_gym.bench.result import BenchResult
from ludic_gym.rollout.outcome import outcome
from ludic_gym.rollout.transcript import Transcript

MOST_SHOWN = 3


def result_html(result: BenchResult) -> str:
    """The table of a result, the lines below it, and three transcripts, failures first."""
    name = result.played[0].task.env_id if result.played else ""
    results = {name: result}
    lines = [*note_lines([result]), *figure_lines(results), *fault_lines(results)]
    shown = sorted(map(Transcript, result.played), key=lambda one: one.wrong is None)[:MOST_SHOWN]
    return "".join(
        [
            table_html(result_table({name: result})),
            *(f"<div>{escape(line)}</div>" for line in lines),
            *(_details(one) for one in shown),
        ]
    )


def table_html(table: Sequence[Sequence[str]]) -> str:
    """A table whose first row has the headings."""
    headings, *others = ([escape(cell) for cell in row] for row in table)
    head = "".join(f"<th>{cell}</th>" for cell in headings)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in others)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _details(shown: Transcript) -> str:
    episode = shown.episode
    ending = ", ".join(map(outcome, episode.rollouts)) or "error"
    about = "" if shown.wrong is None else f", reply {shown.wrong + 1} went wrong"
    summary = f"episode {episode.index}, seed {episode.task.seed}: {ending}{about}"
    return f"<details><summary>{escape(summary)}</summary>{shown._repr_html_()}</details>"
