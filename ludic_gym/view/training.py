"""Data of the page for a folder of `ludic train`: curves, and rollouts over time."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

from ludic_gym.bench.result import score
from ludic_gym.records import episode_from_json
from ludic_gym.view.transcript import JSON, TokenTexts, chunks, columns, transcript

METRICS, ROLLOUTS, CONFIG = "metrics.jsonl", "rollouts.jsonl", "config.toml"


def training_run(
    folder: Path, *, name: str, most: int = 50_000, token_texts: TokenTexts | None = None
) -> JSON:
    """The metrics of every update, and the last `most` recorded rollouts.

    folder: of `ludic train`, in progress or finished. name: of the run in the page.
    token_texts: texts of token ids, or None to show the ids.
    Returns the keys of `bench_run`. "curves" has the updates and values of each metric, and the
    column "nth" is the update in which a rollout was trained on.
    Raises DataError for a rollout of another schema.
    """
    config = folder / CONFIG
    about = tomllib.loads(config.read_text(encoding="utf-8")) if config.exists() else {}
    kept = list(_records(folder / ROLLOUTS))[-most:]
    episodes = [episode_from_json(record) for record in kept]
    ids = list(dict.fromkeys(episode.task.env_id for episode in episodes))
    return {
        "kind": "train",
        "name": name,
        "model": str(about.get("model") or about.get("name") or ""),
        "about": about,
        "envs": [{"id": env_id} for env_id in ids],
        "columns": columns(
            [ids.index(episode.task.env_id) for episode in episodes],
            [record["update"] for record in kept],
            [score(episode) for episode in episodes],
            [None] * len(kept),
        ),
        "chunks": list(
            chunks((i, json.dumps(transcript(e, token_texts))) for i, e in enumerate(episodes))
        ),
        # All of them, unlike the rollouts: a point takes a few bytes.
        "curves": _curves(folder / METRICS),
    }


def _records(path: Path) -> Iterator[JSON]:
    """The records of a file that may be growing; an unfinished last line is left out."""
    if path.exists():
        with path.open(encoding="ascii") as file:
            # The trainer may be writing the last line.
            yield from (json.loads(line) for line in file if line.endswith("\n"))


def _curves(path: Path) -> list[JSON]:
    """The updates and values of each metric; metrics in order of appearance."""
    points: dict[str, dict[int, float]] = {}
    for record in _records(path):
        for name, value in record.items():
            # Records may have texts too, such as the name of a device. A resumed run may repeat
            # updates: the later value counts.
            if name != "update" and isinstance(value, (int, float)):
                points.setdefault(name, {})[record["update"]] = value
    return [
        {"name": name, "updates": sorted(values), "values": [values[u] for u in sorted(values)]}
        for name, values in points.items()
    ]
