"""Data of the page for a folder of `ludic train`: curves, and rollouts over time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from ludic_gym.bench.result import score
from ludic_gym.records import episode_from_json
from ludic_gym.view.transcript import JSON, TokenTexts, transcript

METRICS, ROLLOUTS, CONFIG = "metrics.jsonl", "rollouts.jsonl", "config.json"
COLUMNS = ("index", "success", "reward", "outcome", "turns")


def training_view(
    folder: Path, *, most: int = 10_000, token_texts: TokenTexts | None = None
) -> JSON:
    """The metrics of every update, and the last `most` recorded rollouts."""
    config = folder / CONFIG
    kept = list(_rollouts(folder / ROLLOUTS))[-most:]
    return {
        "kind": "train",
        "title": folder.name,
        "curves": _curves(folder / METRICS),
        "runs": [
            _run(
                folder, json.loads(config.read_text()) if config.exists() else {}, kept, token_texts
            )
        ],
    }


def _run(
    folder: Path, config: Mapping[str, JSON], kept: list[JSON], token_texts: TokenTexts | None
) -> JSON:
    episodes = [episode_from_json(record) for record in kept]
    scores = [score(episode) for episode in episodes]
    ids = list(dict.fromkeys(episode.task.env_id for episode in episodes))
    return {
        "name": folder.name,
        "about": config,
        "envs": [{"id": env_id} for env_id in ids],
        "columns": {
            "env": [ids.index(episode.task.env_id) for episode in episodes],
            "nth": [record["update"] for record in kept],
            "task": [str(one.task) for one in scores],
            "error": [one.error or "" for one in scores],
            "tokens": [one.completion_tokens for one in scores],
            **{name: [getattr(one, name) for one in scores] for name in COLUMNS},
        },
        "chunks": [
            {
                "start": 0,
                "episodes": [json.dumps(transcript(e, token_texts)) for e in episodes],
            }
        ]
        * bool(episodes),
    }


def _rollouts(path: Path) -> Iterator[JSON]:
    """The records of a file that may be growing; an unfinished last line is left out."""
    if path.exists():
        with path.open(encoding="ascii") as file:
            yield from (json.loads(line) for line in file if line.endswith("\n"))


def _curves(path: Path) -> list[JSON]:
    """The points [update, value] of each metric; metrics in order of appearance."""
    points: dict[str, list[list[float]]] = {}
    for record in _rollouts(path):
        for name, value in record.items():
            if name != "update" and isinstance(value, (int, float)):
                points.setdefault(name, []).append([record["update"], value])
    return [{"name": name, "points": values} for name, values in points.items()]
