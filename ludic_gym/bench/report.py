"""The terminal: a progress bar, the cells of the result table, and the lines below it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from envs_registry.catalog import CATALOG
from ludic_gym.bench.result import REFUSALS, BenchResult, Price
from ludic_gym.errors import QuotaExhausted
from ludic_gym.rollout.outcome import TOO_LONG

if TYPE_CHECKING:
    from ludic_gym.clients.attempts import Usage

MAX_REASONS = 10
MAX_INDICES = 5
HEADINGS = ("env", "successes", "rate", "95%", "reward", "95%", "random", "legal")
# Columns that are left out where all their numbers are 0.
# Outcome of all episodes, or fault of all turns -> its likely reason.
ZEROS = {
    TOO_LONG: "no prompt fits into the model's context: see --max-length, or the server's limit",
    "filtered": "every reply was filtered: the vendor takes these prompts for harmful ones",
    "refused": "every reply is a refusal: read some with `ludic view`, and see --harness",
    "cut_off": "every reply was cut off before it ended: a thought may need more --max-tokens",
    "empty": "every reply is empty: the server may take all of it for a thought (its reasoning "
    "parser), or use another model's chat template",
    "illegal": "no reply has a legal action: read some with `ludic view`; the model may not know "
    "the form (see --harness)",
}
NO_TOOLS = (
    "no tool was called, and there are tools: the model or its server may not know their format; "
    "see tool_format=text of --harness"
)
RARE = {"cut": "cut_off", "empty": "empty", "failed": "errors"}


def spent_text(usage: Usage, price: Price | None) -> str:
    """Tokens as a server counts them, their cost if there is a price, and requests that wait."""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    text = f"{usage.prompt_tokens:,}{cached} + {usage.completion_tokens:,} tokens"
    if price is not None:
        cost = price.cost(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
        text += f", cost {cost:.2f}"
    return text + (f", {usage.waiting} wait for the busy server" if usage.waiting else "")


def result_table(
    results: Mapping[str, BenchResult], env_kwargs: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """The headings, then a row per env.

    The columns `legal`, `cut` and `empty` are shares of turns: with an action that the env allows,
    whose reply ran into the limit of tokens, and whose reply is blank; the last two, and `failed`
    episodes, which the model did not end, are shown if there are any.
    env_kwargs: arguments that the envs were made with. The column `random` has the success rate of
        random play in the catalogue, which is known for the default ones alone.
    """
    random = {} if env_kwargs else {entry.id: entry.random_success for entry in CATALOG}
    # A column of zeros would only take room from the others.
    rare = [n for n, of in RARE.items() if any(getattr(r, of) for r in results.values())]
    rows: list[tuple[str, ...]] = [(*HEADINGS, *rare)]
    for label, result in results.items():
        # Scores on the bundled sample are marked: it is not the data set itself.
        mark = " (sample)" if result.note else ""
        turns = result.turns or math.nan
        # An environment of another package may say nothing of success.
        is_unknown = bool(result.episodes) and math.isnan(result.success_rate)
        shares = {
            "cut": percent(result.cut_off / turns),
            "empty": percent(result.empty / turns),
            "failed": failed_cell(result),
        }
        cells = (
            label + mark,
            f"{'-' if is_unknown else result.successes}/{result.episodes}",
            percent(result.success_rate),
            "-" if math.isnan(result.success_rate) else result.success_interval.in_percent(),
            f"{result.mean_reward:.2f}" if result.episodes else "-",
            f"{result.reward_interval:.2f}" if result.reward_interval else "-",
            percent(random.get(label, math.nan)),
            percent(1 - result.illegal / turns),
            *(shares[name] for name in rare),
        )
        rows.append(cells)
    return rows


def note_lines(results: Iterable[BenchResult]) -> list[str]:
    """The notes of the results, each once: footnotes of their table."""
    return list(dict.fromkeys(result.note for result in results if result.note))


def figure_lines(results: Mapping[str, BenchResult]) -> list[str]:
    """Lines below the table: further metrics, pass@k and pass^k, the served model and its tokens.

    pass@k is of one sample, of all, and of the powers of two between.
    """
    lines = []
    for label, result in results.items():
        if result.metrics:
            metrics = (f"{name} {percent(value)}" for name, value in result.metrics.items())
            lines.append(f"{label}: {', '.join(metrics)}")
        if most := len(result.pass_at_k):
            # Every k would make a long line; between powers of two the estimates change little.
            counts = sorted({most} | {1 << i for i in range(most.bit_length()) if 1 << i <= most})
            at_k, hat_k = (
                ", ".join(f"{values[k - 1]:.1%} at {k}" for k in counts)
                for values in (result.pass_at_k, result.pass_hat_k)
            )
            lines.append(f"{label}: pass@k {at_k}; pass^k {hat_k}")
        if result.model:
            line = f"{label}: model {result.model}"
            if result.prompt_tokens is not None and result.completion_tokens is not None:
                line += f", {result.prompt_tokens:,} + {result.completion_tokens:,} tokens"
                line += "" if result.cost is None else f", cost {result.cost:.4f}"
            lines.append(line)
    return lines


def fault_lines(
    results: Mapping[str, BenchResult], *, with_tools: Collection[str] = ()
) -> list[str]:
    """Lines about failed episodes, ten reasons per env, about cut replies, and results of zero.

    with_tools: labels of results where tools were offered.
    """
    lines = []
    for label, result in results.items():
        if result.errors:
            causes = " and ".join(f"{cause} ({count})" for cause, count in result.blames.items())
            lines.append(
                f"{label}: {failed_cell(result)} episodes were ended by {causes} and do not count; "
                "with --out, the same command plays them first"
            )
        # By reason, because a server that is down fails all episodes with the same text.
        indices: dict[str, list[int]] = {}
        for index, reason in result.errors:
            indices.setdefault(reason, []).append(index)
        for reason, failed in list(indices.items())[:MAX_REASONS]:
            more = f" and {len(failed) - MAX_INDICES} more" if len(failed) > MAX_INDICES else ""
            first = ", ".join(map(str, failed[:MAX_INDICES]))
            lines.append(f"{label}, episode {first}{more}: {reason}")
        if len(indices) > MAX_REASONS:
            lines.append(f"{label}: {len(indices) - MAX_REASONS} more reasons")
        if result.stopped:
            is_final = result.stopped.startswith(QuotaExhausted.__name__)
            reason = "at once" if is_final else f"after the same error {REFUSALS} times in a row"
            lines.append(f"{label}: stopped {reason}")
        if reason := zero_line(result, has_tools=label in with_tools):
            lines.append(f"{label}: {reason}")
            continue
        # The table has no columns for these.
        ends = {word: result.outcomes.get(word, 0) for word in ("filtered", "refused", TOO_LONG)}
        if any(ends.values()):
            counts = ", ".join(f"{count} {word}" for word, count in ends.items() if count)
            lines.append(f"{label}: of {result.episodes} episodes, {counts}; they are failures")
        if result.cut_off:
            lines.append(
                f"{label}: {result.cut_off} replies ran into the token limit; see --max-tokens"
            )
    return lines


def zero_line(result: BenchResult, *, has_tools: bool = False) -> str:
    """The likely reason of a result without a success; "" for one that replies may explain.

    has_tools: true where tools are offered to the model.
    """
    number, turns = result.episodes, result.turns
    earns = math.isnan(result.success_rate) and result.mean_reward > 0
    # A scripted player has no replies that could be at fault.
    is_model = result.tool_calls is not None or TOO_LONG in result.outcomes
    if not number or result.successes or earns or not is_model:
        return ""
    everywhere = {word for word, count in result.outcomes.items() if count == number}
    # Words without a count of turns are outcomes alone.
    in_turns = {"cut_off": result.cut_off, "empty": result.empty, "illegal": result.illegal}
    everywhere |= {word for word, count in in_turns.items() if turns and count == turns}
    for word, reason in ZEROS.items():
        if word in everywhere:
            return reason
    return NO_TOOLS if has_tools and result.tool_calls == 0 else ""


def failed_cell(result: BenchResult) -> str:
    """Number and share of the episodes that the model did not end."""
    return f"{len(result.errors)} ({percent(result.dropped)})" if result.errors else "0"


def percent(share: float) -> str:
    """A share in percent; "-" for nan.

    >>> percent(0.625), percent(float("nan"))
    ('62.5%', '-')
    """
    return "-" if math.isnan(share) else f"{share:.1%}"


class RateColumn(ProgressColumn):
    """Episodes per second."""

    def render(self, task: Task) -> Text:
        """The recent rate, computed only when the bar is drawn."""
        return Text(f"{task.finished_speed or task.speed or 0.0:,.0f}/s")


class NoteColumn(ProgressColumn):
    """The text behind the bar, which changes while no episode ends."""

    def render(self, task: Task) -> Text:
        """The text, computed only when the bar is drawn."""
        return Text(task.fields["note"]())


@contextmanager
def progress_bar(
    label: str, *, total: int, done: int = 0, note: Callable[[], str] = str
) -> Iterator[Callable[[object], None]]:
    """A function to call with every finished episode.

    label: the text before the bar. total: number of episodes.
    done: episodes that need not be played again. note: the text behind the bar.
    """
    bar = Progress(
        # Ids may have brackets, which Rich would read as markup.
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(),
        NoteColumn(),
        # Not standard output, which holds the results and may be piped.
        console=Console(stderr=True),
    )
    with bar:
        row = bar.add_task(label, total=total, completed=done, note=note)
        yield lambda episode: bar.update(row, advance=1)
