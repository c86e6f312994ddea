"""Data of the page for a folder of `ludic train`: curves, and rollouts over time."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

from ludic_gym.bench.result import score
from ludic_gym.records import episode_from_json
from ludic_gym.view.transcript import JSON, TokenTexts, chunks, columns

METRICS, ROLLOUTS, CONFIG = "metrics.jsonl", "rollouts.jsonl", "config.toml"


def training_view(
    folder: Path, *, most: int = 10_000, token_texts: TokenTexts | None = None
) -> JSON:
    """The metrics of every update, and the last `most` recorded rollouts.

    folder: of `ludic train`, in progress or finished.
    token_texts: texts of token ids, or None to show the ids.
    Returns the same keys as `bench_view`, with "curves" and one run. Its column "nth" is the
    update in which a rollout was trained on.
    Raises DataError for a rollout of another schema.
    """
    config = folder / CONFIG
    kept = list(_rollouts(folder / ROLLOUTS))[-most:]
    episodes = [episode_from_json(record) for record in kept]
    ids = list(dict.fromkeys(episode.task.env_id for episode in episodes))
    run = {
        "name": folder.name,
        "about": tomllib.loads(config.read_text(encoding="utf-8")) if config.exists() else {},
        "envs": [{"id": env_id} for env_id in ids],
        "columns": columns(
            [ids.index(episode.task.env_id) for episode in episodes],
            [record["update"] for record in kept],
            [score(episode) for episode in episodes],
        ),
        "chunks": list(chunks(enumerate(episodes), token_texts)),
    }
    # All of them, unlike the rollouts: a point takes a few bytes.
    curves = _curves(folder / METRICS)
    return {"kind": "train", "title": folder.name, "curves": curves, "runs": [run]}


def _rollouts(path: Path) -> Iterator[JSON]:
    """The records of a file that may be growing; an unfinished last line is left out."""
    if path.exists():
        with path.open(encoding="ascii") as file:
            # The trainer may be writing the last line.
            yield from (json.loads(line) for line in file if line.endswith("\n"))


def _curves(path: Path) -> list[JSON]:
    """The points [update, value] of each metric; metrics in order of appearance."""
    points: dict[str, list[list[float]]] = {}
    for record in _rollouts(path):
        for name, value in record.items():
            # Records may have texts too, such as the name of a device.
            if name != "update" and isinstance(value, (int, float)):
                points.setdefault(name, []).append([record["update"], value])
    return [{"name": name, "points": values} for name, values in points.items()]
