"""Data of the page for folders of `ludic bench --out`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from envs_registry.catalog import CATALOG
from ludic_gym.bench.folder import read_request, transcript_path
from ludic_gym.bench.records import read_scores
from ludic_gym.bench.result import Score
from ludic_gym.bench.tally import Tally
from ludic_gym.records import read_episodes
from ludic_gym.types import Episode
from ludic_gym.view.transcript import JSON, TokenTexts, chunks, columns


def bench_view(
    folders: Sequence[Path], *, most: int = 10_000, token_texts: TokenTexts | None = None
) -> JSON:
    """Results and episodes of one benchmark, or of two side by side.

    folders: of `ludic bench --out`, in progress or finished.
    most: limit of transcripts per folder, the first ones of each env in equal shares; the other
        episodes have their scores only.
    token_texts: texts of token ids, or None to show the ids.
    Returns "kind", "title", "runs" and "curves" (none). A run has "about" (its request), "envs"
    (results by env), "columns" (a row per episode) and "chunks" (transcripts by row).
    Raises ConfigError for a folder of another kind.
    """
    runs = [_run(folder, most=most, token_texts=token_texts) for folder in folders]
    title = " and ".join(run["name"] for run in runs)
    return {"kind": "bench", "title": title, "runs": runs, "curves": []}


def _run(folder: Path, *, most: int, token_texts: TokenTexts | None) -> JSON:
    """One folder for the page; the rows are those of its envs, one env after the other."""
    request = read_request(folder)
    envs = request.pop("envs")
    scores = {env_id: list(read_scores(transcript_path(folder, env_id))) for env_id in envs}
    rows = [(i, score) for i, of_env in enumerate(scores.values()) for score in of_env]
    kept = _first_episodes(folder, scores, max(1, most // max(1, len(envs))))
    return {
        "name": folder.name,
        "about": request,
        "envs": [_env(env_id, envs[env_id], scores[env_id]) for env_id in envs],
        "columns": columns(
            [i for i, _ in rows],
            _nth([(i, score.task) for i, score in rows]),
            [score for _, score in rows],
        ),
        "chunks": list(chunks(kept, token_texts)),
    }


def _env(env_id: str, requested: JSON, scores: Sequence[Score]) -> JSON:
    """The results of an env. requested: its part of the folder's request."""
    # From the scores and not from results.json, which a run in progress does not have yet.
    result = asdict(Tally(scores).result())
    known = {entry.id: entry for entry in CATALOG}.get(env_id)
    return {
        "id": env_id,
        "kwargs": requested["kwargs"],
        # Measured with the default arguments: others may make random play better or worse.
        "random": None if known is None or requested["kwargs"] else known.random_success,
        **result,
    }


def _nth(tasks: Sequence[Hashable]) -> list[int]:
    """The number of earlier rows of the same task, for each row.

    >>> _nth(["a", "b", "a", "a"])
    [0, 0, 1, 2]
    """
    # Samples are paired by number where two runs are compared.
    seen: Counter[Hashable] = Counter()
    nth = []
    for task in tasks:
        nth.append(seen[task])
        seen[task] += 1
    return nth


def _first_episodes(
    folder: Path, scores: Mapping[str, Sequence[Score]], share: int
) -> Iterator[tuple[int, Episode]]:
    """The first episodes of each env, with their rows in the columns.

    scores: by env, in the order of the columns. share: limit of episodes per env.
    """
    start = 0
    for env_id, of_env in scores.items():
        path = transcript_path(folder, env_id)
        # A run in progress may have more episodes by now than its scores when they were read.
        count = min(share, len(of_env))
        if count:
            yield from enumerate(islice(read_episodes(path), count), start)
        start += len(of_env)
