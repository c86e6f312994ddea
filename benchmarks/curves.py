"""Scaling curves, as results/curves.json and pictures of the documentation.

    python benchmarks/curves.py

Steps of Tic-Tac-Toe by the number of environments of a vector (1 to 4,096), GSM8K rollouts by the
number in flight, and rows by their tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import harness.env_loads as envs
from harness.rates import MakeWork, rates, save
from harness.rollout_loads import rollouts
from harness.row_loads import copies, rows

from ludic_gym.vector.ragged import make_ragged

PICTURES = Path(__file__).parents[1] / "docs" / "img"
WIDTH, HEIGHT, MARGIN = 640, 320, 60
COLOURS = ("#1565c0", "#c62828", "#2e7d32")
# Rates by series; each has one per place on the axis.
Curves = Mapping[str, Sequence[float]]


def curves(places: Sequence[int], series: Mapping[str, Sequence[MakeWork]]) -> Curves:
    """The median rate of each work; those of one place are measured side by side."""
    found: dict[str, list[float]] = {name: [] for name in series}
    for number in range(len(places)):
        works = {name: each[number]() for name, each in series.items()}
        for name, rate in rates(works, seconds=0.1, rounds=5).items():
            found[name].append(rate.median)
    return found


def picture(title: str, axis: str, places: Sequence[int], found: Curves) -> str:
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
            f'<text x="{x}" y="{HEIGHT - MARGIN + 22}" text-anchor="middle">{place:,}</text>'
        )
    for number, (name, line) in enumerate(found.items()):
        colour = COLOURS[number]
        points = [at(place, rate) for place, rate in zip(places, line, strict=True)]
        path = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), rate in zip(points, line, strict=True):
            parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>')
            parts.append(
                f'<text x="{x}" y="{y - 7}" text-anchor="middle" fill="{colour}">'
                f"{rate / 1000:.3g}k</text>"
            )
        parts.append(f'<text x="{MARGIN}" y="{34 + 14 * number}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Measure, and write the pictures."""
    sizes, in_flight = (1, 8, 64, 512, 4096), (1, 16, 64, 256, 1024, 4096)
    lengths = (16, 128, 1024, 8192, 32768)
    charts = {
        "envs": (
            "Steps of Tic-Tac-Toe per CPU-second",
            "environments of a vector",
            sizes,
            {
                "RaggedVectorEnv": [
                    lambda n=n: envs.vector_steps(make_ragged(envs.GAME, n)) for n in sizes
                ],
                "SyncVectorEnv": [lambda n=n: envs.vector_steps(envs.sync_games(n)) for n in sizes],
            },
        ),
        "rollouts": (
            "GSM8K rollouts per CPU-second, instant client",
            "episodes in flight",
            in_flight,
            {
                "run_episodes": [
                    partial(rollouts, envs.QUESTIONS, concurrency=n, amount=8192) for n in in_flight
                ]
            },
        ),
        "rows": (
            "Rows per CPU-second, one turn",
            "tokens of a row",
            lengths,
            {
                "rows_from": [partial(rows, 1, tokens=n) for n in lengths],
                "arrays by numpy": [partial(copies, tokens=n) for n in lengths],
            },
        ),
    }
    kept = {}
    for name, (title, axis, places, series) in charts.items():
        found = curves(places, series)
        (PICTURES / f"curve-{name}.svg").write_text(picture(title, axis, places, found))
        kept[name] = {"places": places, "rates": found}
        print(title, *zip(places, *found.values(), strict=True), sep="\n  ", flush=True)
    save("curves", kept)


if __name__ == "__main__":
    main()
