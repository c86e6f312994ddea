"""Page on speed: the last table of `make bench`, and the scaling curves as pictures.

    python docs/speed_page.py

Writes the text between the marks of docs/guides/speed.md, and docs/img/curve-*.svg, from
benchmarks/results/.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
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
    "engine_vllm": "Local engine beside vLLM for CPUs",
    "queue": "Queue",
}
WIDTH, HEIGHT, MARGIN = 640, 320, 60
COLOURS = ("#1565c0", "#c62828", "#2e7d32")
Json = Mapping[str, Any]


def main() -> None:
    """Write page and pictures."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_results(text), encoding="utf-8")
    for name, svg in pictures().items():
        (DOCS / "img" / name).write_text(svg, encoding="utf-8")


def with_results(text: str) -> str:
    """The page's text with the results of today between the marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + "\n".join(sections()) + END + after


def pictures() -> dict[str, str]:
    """The curves as SVG, by file name."""
    found = _results("curves")
    return {
        f"curve-{name}.svg": picture(each["title"], each["axis"], each["places"], each["rates"])
        for name, each in (found["lines"] if found else {}).items()
    }


def sections() -> Iterator[str]:
    """Tables of rates, memory, start-up and the pictures, in Markdown."""
    for name, title in TABLES.items():
        if found := _results(name):
            yield _table(title, found)
    if found := _results("train_loop"):
        yield _train_loop(found)
    if found := _results("memory"):
        yield _memory(found)
    if found := _results("startup"):
        yield _startup(found)
    if found := _results("curves"):
        yield f"## Scaling curves\n\n{_versions(found)}\n"
        for name, each in found["lines"].items():
            yield f"![{each['title']}, by {each['axis']}](../img/curve-{name}.svg)\n"


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


def _train_loop(found: Json) -> str:
    """CPU-seconds of a short run beside the loop by hand, part by part and in all."""
    result = found["lines"]
    ours, others = result["ours"], result["by_hand"]
    lines = ["## `ludic train tic-tac-toe`", "", _versions(found), ""]
    lines += ["| CPU-seconds | ours | loop by hand | ratio | goal |", "|---|---|---|---|---|"]
    every = [(part, ours[part], others[part], "") for part in result["parts"]]
    total = sum(ours.values()), sum(others.values())
    for part, own, other, goal in [*every, ("all", *total, f"at most {result['goal']:g}")]:
        lines.append(f"| {part} | {own:.2f} | {other:.2f} | {own / other:.2f} | {goal} |")
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


def picture(
    title: str, axis: str, places: Sequence[int], found: Mapping[str, Sequence[float]]
) -> str:
    """The curves as SVG: both axes logarithmic, with a point and its rate for each place."""
    top = max(map(max, found.values()))
    low = min(map(min, found.values()))
    right, across = WIDTH - 2 * MARGIN, math.log(places[-1] / places[0])
    up = math.log(top / low) or 1.0

    def at(place: int, rate: float) -> tuple[float, float]:
        x = MARGIN + right * math.log(place / places[0]) / across
        y = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * math.log(rate / low) / up
        return round(x, 1), round(y, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{MARGIN}" y="18" font-size="14">{title}</text>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">{axis}</text>',
    ]
    for place in places:
        x, _ = at(place, low)
        parts.append(
            f'<text x="{x}" y="{HEIGHT - MARGIN + 32}" text-anchor="middle">{place:,}</text>'
        )
    lowest = [min(rates) for rates in zip(*found.values(), strict=True)]
    for number, (name, line) in enumerate(found.items()):
        colour = COLOURS[number]
        points = [at(place, rate) for place, rate in zip(places, line, strict=True)]
        path = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), rate, low_rate in zip(points, line, lowest, strict=True):
            parts += _point(x, y, rate, colour, below=len(found) > 1 and rate == low_rate)
        parts.append(f'<text x="{MARGIN + 140 * number}" y="34" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _point(x: float, y: float, rate: float, colour: str, *, below: bool) -> Iterator[str]:
    """A point and its rate, below it for the lowest of several series, where it covers no other."""
    yield f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'
    at = round(y + (16 if below else -7), 1)
    yield f'<text x="{x}" y="{at}" text-anchor="middle" fill="{colour}">{_short(rate)}</text>'


def _short(rate: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        # Three digits round 999,900 to a million.
        if rate >= 0.9995 * size:
            return f"{rate / size:.3g}{unit}"
    return f"{rate:.3g}"


if __name__ == "__main__":
    main()
