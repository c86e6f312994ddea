"""Data of the page for folders of `ludic bench --out` and of `ludic train`."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import get_args

from envs_registry.catalog import CATALOG
from ludic_gym.bench.comparison import Measure, compare
from ludic_gym.bench.folder import TIMES, read_request, transcript_path
from ludic_gym.bench.result import Price, Score, Tally, score
from ludic_gym.errors import ConfigError
from ludic_gym.records import episode_from_json, read_lines
from ludic_gym.view.transcript import JSON, TokenTexts, chunks, columns, transcript

# Of more runs, only the first one is compared with each: the number of pairs grows as a square.
ALL_PAIRS_UP_TO = 6
Seconds = Mapping[tuple[str, int | None, int | None], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """A benchmark's folder for the page, and its scores by env."""

    data: JSON
    scores: Mapping[str, Sequence[Score]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """An episode of the page. transcript: its JSON, None beyond the limit of transcripts."""

    score: Score
    seconds: float | None
    transcript: str | None


def bench_run(
    folder: Path, *, name: str, most: int = 50_000, token_texts: TokenTexts | None = None
) -> BenchRun:
    """The results and episodes of one benchmark, in progress or finished.

    name: of the run in the page.
    most: limit of transcripts, the first ones of each env in equal shares; the other episodes have
        their scores only.
    token_texts: texts of token ids, or None to show the ids.
    The data has "kind", "name", "model" (the served one, or the policy), "about" (the request),
    "envs" (results by env), "columns" (a row per episode), "chunks" (transcripts by row) and
    "curves" (none). Raises ConfigError for a folder of another kind.
    """
    request = read_request(folder)
    envs = request.pop("envs")
    share = max(1, most // max(1, len(envs)))
    seconds = _seconds(folder / TIMES)
    of_envs = {env_id: _rows(folder, env_id, share, seconds, token_texts) for env_id in envs}
    random = {entry.id: entry.random_success for entry in CATALOG}
    shown = []
    for env_id, of_env in of_envs.items():
        times = [row.seconds for row in of_env if row.seconds is not None]
        kwargs = envs[env_id]["kwargs"]
        # From the scores and not from results.json, which a run in progress does not have yet.
        result = asdict(Tally(row.score for row in of_env).result())
        # Measured with the default arguments: others may make random play better or worse.
        about = {"id": env_id, "kwargs": kwargs, "random": None if kwargs else random.get(env_id)}
        shown.append({**about, **result, "seconds": sum(times) / len(times) if times else None})
    rows = [(i, row) for i, of_env in enumerate(of_envs.values()) for row in of_env]
    kept = ((i, row.transcript) for i, (_, row) in enumerate(rows) if row.transcript is not None)
    data = {
        "kind": "bench",
        "name": name,
        "model": request.get("served") or request["policy"],
        "about": {**request, "envs": envs},
        "envs": shown,
        "columns": columns(
            [i for i, _ in rows],
            _nth([(i, row.score.task) for i, row in rows]),
            [row.score for _, row in rows],
            [row.seconds for _, row in rows],
        ),
        "chunks": list(chunks(kept)),
        "curves": [],
    }
    return BenchRun(data=data, scores={e: [row.score for row in of_envs[e]] for e in envs})


def differences(runs: Sequence[BenchRun]) -> list[JSON]:
    """The paired differences between runs, per env and measure; see `bench.comparison.compare`.

    Between all runs, or, of more than six, between the first and each other one. Envs without a
    common task are left out. "first" and "second" are positions in `runs`.
    """
    pairs = [
        pair for pair in combinations(range(len(runs)), 2)
        if len(runs) <= ALL_PAIRS_UP_TO or pair[0] == 0
    ]  # fmt: skip
    found = []
    for first, second in pairs:
        before, after = runs[first].scores, runs[second].scores
        for env_id in (env_id for env_id in before if env_id in after):
            for measure in get_args(Measure):
                try:
                    result = compare(before[env_id], after[env_id], measure=measure)
                except ConfigError:
                    continue
                about = {"first": first, "second": second, "env": env_id, "measure": measure}
                # The page has the means already, over all tasks and not only the common ones.
                numbers = {"tasks": result.tasks, "difference": result.difference}
                found.append({**about, **numbers, "interval": result.interval, "p": result.p_value})
    return found


def _rows(
    folder: Path, env_id: str, share: int, seconds: Seconds, token_texts: TokenTexts | None
) -> list[_Row]:
    """The episodes of an env. share: limit of transcripts."""
    path = transcript_path(folder, env_id)
    rows: list[_Row] = []

    def row(record: JSON) -> _Row:
        task = record["task"]
        text = None
        # Read once: of a large run, most of the time would go into parsing it again.
        if len(rows) < share:
            price = Price(*record["price"]) if "price" in record else None
            shown = transcript(episode_from_json(record), token_texts, price=price)
            text = json.dumps(shown, separators=(",", ":"))
        return _Row(
            score=Score(**record["score"]),
            seconds=seconds.get((env_id, task["seed"], task["sampling"]["seed"])),
            transcript=text,
        )

    if path.exists():
        for one in read_lines(path, row, growing=True):
            rows.append(one)
    return rows


def _seconds(path: Path) -> Seconds:
    """Seconds of each episode, by env, seed and sampling seed; of a repeated one the last."""
    seconds = {}
    if path.exists():
        for line in path.read_text(encoding="ascii").splitlines():
            # The file is written in blocks: a killed run leaves half a line, and its continuation
            # appends to it. The time of that episode is unknown.
            with suppress(ValueError):
                one = json.loads(line)
                seconds[one["env"], one["seed"], one["sampling_seed"]] = one["seconds"]
    return seconds


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
