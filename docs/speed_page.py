"""Page on speed: the last tables of `make bench`.

    python docs/speed_page.py

Writes the text between the marks of docs/guides/speed.md from benchmarks/results/.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGE = DOCS / "guides" / "speed.md"
RESULTS = DOCS.parent / "benchmarks" / "results"
BEGIN, END = "<!-- begin: python docs/speed_page.py -->\n", "<!-- end -->\n"
# Results of tables, in the order of the page; each of a program in benchmarks/.
TABLES = {
    "environments": "Environments and graders",
    "rollouts": "Rollouts",
    "rows": "Rows",
    "updates": "Updates",
    "updates_trl": "Updates beside TRL",
    "engine": "Local engine",
    "queue": "Queue",
    "hosted": "Requests to hosted models",
}
Json = Mapping[str, Any]


def main() -> None:
    """Write the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_results(text), encoding="utf-8")


def with_results(text: str) -> str:
    """The page's text with the results of today between the marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + "\n".join(sections()) + END + after


def sections() -> Iterator[str]:
    """Tables of rates, memory and start-up, in Markdown."""
    for name, title in TABLES.items():
        if found := _results(name):
            yield _table(title, found)
    if found := _results("costs"):
        yield _costs(found)
    if found := _results("memory"):
        yield _memory(found)
    if found := _results("startup"):
        yield _startup(found)


def _results(name: str) -> Json | None:
    path = RESULTS / f"{name}.json"
    found: Json | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return found


def _versions(found: Json) -> str:
    packages = ", ".join(f"{name} {v}" for name, v in found["packages"].items() if v)
    return f"{found['date']}, Python {found['python']}, {packages}."


def _table(title: str, found: Json) -> str:
    lines = [f"## {title}", "", _versions(found), ""]
    lines += ["| what | ours: median | best | beside it | median | ratio | goal |"]
    lines += ["|---|---|---|---|---|---|---|"]
    lines += [row for line in found["lines"] for row in _rows(line)]
    return "\n".join(lines) + "\n"


def _rows(line: Json) -> Iterator[str]:
    """A row for each rate beside ours; the first one has our rate."""
    ours, others = line["rates"]["ours"], {k: v for k, v in line["rates"].items() if k != "ours"}
    head = f"| {line['what']} | {_rounded(ours['median'])} | {_rounded(ours['best'])} |"
    goal = f"{line['goal']:,.0f}" if line["goal"] else ""
    if not others:
        yield f"{head} | | | {goal} |"
    for name, rate in others.items():
        is_limit = name == line["limit"]
        if line["goal_ratio"] and not is_limit:
            wanted = f"{line['goal_ratio']:g}x"
        else:
            # A rate as the goal stands once.
            wanted, goal = goal, ""
        ratio = f"{_rounded(rate['median'])} | {rate['ratio']:.2f}"
        yield f"{head} {'limit: ' if is_limit else ''}{name} | {ratio} | {wanted} |"
        head = "| | | |"
    for name in line.get("missing", []):
        yield f"| | | | {name} | not installed | | |"


def _rounded(rate: float) -> str:
    """The rate, with a decimal where it is small."""
    return f"{rate:,.0f}" if rate >= 30 else f"{rate:.1f}"


def _costs(found: Json) -> str:
    lines = ["## Growth", "", _versions(found), "", "| cost / that beside it | figure | at most |"]
    lines += ["|---|---|---|"]
    lines += [f"| {c['what']} | {c['figure']:.2f} | {c['most']:.2f} |" for c in found["lines"]]
    return "\n".join(lines) + "\n"


def _memory(found: Json) -> str:
    sizes = found["lines"]
    above, first, *_, last = sizes["in_flight"] - sizes["base"], *sizes["in_a_row"]
    return (
        f"## Memory\n\n- 1,000 episodes in flight: {above:.1f} MB above {sizes['base']:.1f} MB "
        f"(goal 10).\n- {sizes.get('episodes', 100_000):,} episodes in a row: {first:.1f} MB after "
        f"a tenth, {last:.1f} MB at the end.\n"
    )


def _startup(found: Json) -> str:
    lines = ["## Start-up", "", "CPU-seconds of a new process, each beside `import gymnasium`.", ""]
    lines += [
        "| what | median | best | `import gymnasium` | ratio | goal |",
        "|---|---|---|---|---|---|",
    ]
    for line in found["lines"]:
        goal = f"{line['goal_ratio']:.1f}" if line["goal_ratio"] else ""
        figures = f"{line['median']:.2f} | {line['best']:.2f} | {line['unit']:.2f}"
        lines.append(f"| `{line['what']}` | {figures} | {line['ratio']:.2f} | {goal} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
