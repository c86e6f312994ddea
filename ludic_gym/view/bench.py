"""Data of the page for folders of `ludic bench --out`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs_registry.catalog import CATALOG
from ludic_gym.bench.folder import finite, read_request, transcript_path
from ludic_gym.bench.records import read_scores
from ludic_gym.bench.result import Score
from ludic_gym.bench.tally import Tally
from ludic_gym.records import read_episodes
from ludic_gym.view.transcript import JSON, TokenTexts, transcript

# Characters of transcripts that the page parses at once, when one of them is opened.
CHUNK_CHARS = 400_000
COLUMNS = ("index", "success", "reward", "outcome", "turns")


def bench_view(
    folders: Sequence[Path], *, most: int = 10_000, token_texts: TokenTexts | None = None
) -> JSON:
    """Results and episodes of one benchmark, or of two side by side.

    most: limit of transcripts per folder, the first ones of each env in equal shares; the other
        episodes have their scores only.
    Raises ConfigError for a folder of another kind.
    """
    runs = [_run(folder, most=most, token_texts=token_texts) for folder in folders]
    title = " and ".join(run["name"] for run in runs)
    return {"kind": "bench", "title": title, "runs": runs, "curves": []}


def _run(folder: Path, *, most: int, token_texts: TokenTexts | None) -> JSON:
    request = read_request(folder)
    ids = list(request["envs"])
    scores = {env_id: list(read_scores(transcript_path(folder, env_id))) for env_id in ids}
    share = max(1, most // max(1, len(ids)))
    return {
        "name": folder.name,
        "about": {key: value for key, value in request.items() if key != "envs"},
        "envs": [_env(env_id, request["envs"][env_id], scores[env_id]) for env_id in ids],
        "columns": _columns(ids, scores),
        "chunks": list(_chunks(folder, ids, share, token_texts)),
    }


def _env(env_id: str, requested: JSON, scores: Sequence[Score]) -> JSON:
    result = asdict(Tally(scores).result())
    known = {entry.id: entry for entry in CATALOG}.get(env_id)
    return {
        "id": env_id,
        "kwargs": requested["kwargs"],
        "random": None if known is None or requested["kwargs"] else known.random_success,
        **result,
    }


def _columns(ids: Sequence[str], scores: dict[str, list[Score]]) -> JSON:
    """All scores, a list per field; `env` is an index in `ids`, `nth` the sample of a task."""
    rows = [(i, score) for i, env_id in enumerate(ids) for score in scores[env_id]]
    seen: Counter[tuple[int, int]] = Counter()
    nth = []
    for i, score in rows:
        nth.append(seen[i, score.task])
        seen[i, score.task] += 1
    fields = {name: [getattr(score, name) for _, score in rows] for name in COLUMNS}
    return {
        "env": [i for i, _ in rows],
        "nth": nth,
        # JavaScript rounds large whole numbers, by which two tasks could become one.
        "task": [str(score.task) for _, score in rows],
        "error": [score.error or "" for _, score in rows],
        "tokens": [score.completion_tokens for _, score in rows],
        **fields,
    }


def _chunks(
    folder: Path, ids: Sequence[str], share: int, token_texts: TokenTexts | None
) -> Iterator[JSON]:
    """Transcripts in the order of the columns' rows: the first row of a chunk, and their JSON."""
    start, texts, size = 0, list[str](), 0
    row = 0
    for env_id in ids:
        path = transcript_path(folder, env_id)
        for i, episode in enumerate(read_episodes(path) if path.exists() else ()):
            if i < share:
                text = json.dumps(transcript(episode, token_texts))
                # The rows of a chunk are consecutive: it ends where it is long enough, and where
                # rows without transcripts follow.
                if texts and (size + len(text) > CHUNK_CHARS or row != start + len(texts)):
                    yield {"start": start, "episodes": texts}
                    texts, size = [], 0
                start, size = (row, 0) if not texts else (start, size)
                texts.append(text)
                size += len(text)
            row += 1
    if texts:
        yield {"start": start, "episodes": texts}


def as_json(value: Any) -> str:  # noqa: ANN401 - whatever the page shows
    """JSON for a script element, which no text in it can end."""
    return json.dumps(finite(value)).replace("<", "\\u003c").replace(">", "\\u003e")
