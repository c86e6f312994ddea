"""Data of the page for folders of `ludic bench --out` and of `ludic train`."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import get_args

from envs_registry.catalog import CATALOG
from ludic_gym.bench.comparison import Measure, compare
from ludic_gym.bench.folder import TIMES, read_request, transcript_path
from ludic_gym.bench.result import Price, Score, Tally, score
from ludic_gym.errors import ConfigError
from ludic_gym.recorder import ROLLOUTS, Recorded, read_recorded, recorded_sizes
from ludic_gym.records import episode_from_json, read_lines, task_key
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
        result = Tally(row.score for row in of_env).result().numbers
        # Measured with the default arguments: others may make random play better or worse.
        about = {"id": env_id, "kwargs": kwargs, "random": None if kwargs else random.get(env_id)}
        shown.append({**about, **result, "seconds": sum(times) / len(times) if times else None})
    rows = [(i, row) for i, of_env in enumerate(of_envs.values()) for row in of_env]
    texts = ((i, row.transcript) for i, (_, row) in enumerate(rows) if row.transcript is not None)
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
        "chunks": list(chunks(texts)),
        "curves": [],
    }
    return BenchRun(data=data, scores={e: [row.score for row in of_envs[e]] for e in envs})


def differences(runs: Sequence[BenchRun]) -> list[JSON]:
    """The paired differences between runs, per env and measure; see `bench.comparison.compare`.

    Between all runs, or, of more than six, between the first and each other one. "first" and
    "second" are positions in `runs`; "refused" is the reason of a pair without a difference.
    """
    pairs = [
        pair for pair in combinations(range(len(runs)), 2)
        if len(runs) <= ALL_PAIRS_UP_TO or pair[0] == 0
    ]  # fmt: skip
    rows = []
    for first, second in pairs:
        before, after = runs[first].scores, runs[second].scores
        for env_id in (env_id for env_id in before if env_id in after):
            for measure in get_args(Measure):
                about = {"first": first, "second": second, "env": env_id, "measure": measure}
                try:
                    result = compare(before[env_id], after[env_id], measure=measure)
                except ConfigError as error:
                    rows.append({**about, "refused": str(error)})
                    continue
                # The page has the means already, over all tasks and not only the common ones.
                numbers = {"tasks": result.tasks, "difference": result.difference}
                rows.append({**about, **numbers, "interval": result.interval, "p": result.p_value})
    return rows


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


METRICS, CONFIG = "metrics.jsonl", "config.toml"
# Of the lines of a run's episodes in a page, which has about a quarter of it.
MOST_CHARS = 100_000_000


def training_run(
    folder: Path,
    *,
    name: str,
    most: int = 50_000,
    token_texts: TokenTexts | None = None,
    updates: Collection[int] = (),
) -> JSON:
    """The metrics of every update, and the recorded rollouts of some or all updates.

    folder: of `ludic train`, in progress or finished. name: of the run in the page.
    most: limit of rollouts. token_texts: texts of token ids, or None to show the ids.
    updates: those whose rollouts are in the page; if left out, as many as fit, evenly spread over
        the run, the first and the last too.
    Returns the keys of `bench_run`, and "note" about rollouts that were left out. "curves" has the
    updates and values of each metric. A row is a rollout: the column "nth" has the update that it
    was played for, or None where an actor's led to none; "use" is "train" or "evaluate", and
    "weight" its credit, of the step that has most, or None.
    Raises DataError for a rollout of another schema.
    """
    config = folder / CONFIG
    about = tomllib.loads(config.read_text(encoding="utf-8")) if config.exists() else {}
    rows, note = _recorded_rows(folder / ROLLOUTS, most, token_texts, updates)
    ids = list(dict.fromkeys(row.env_id for row in rows))
    return {
        "kind": "train",
        "name": name,
        "model": str(about.get("model") or about.get("name") or ""),
        "about": about,
        "envs": [{"id": env_id} for env_id in ids],
        "columns": {
            **columns(
                [ids.index(row.env_id) for row in rows],
                [row.update for row in rows],
                [row.score for row in rows],
                [None] * len(rows),
            ),
            # By all that makes the task, so that those of two updates can be paired.
            "task": [row.task for row in rows],
            "use": [row.use for row in rows],
            "weight": [row.weight for row in rows],
        },
        "chunks": list(chunks((i, row.transcript) for i, row in enumerate(rows))),
        "note": note,
        # All of them, unlike the rollouts: a point takes a few bytes.
        "curves": _curves(folder / METRICS),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rollout:
    """A rollout of the page."""

    env_id: str
    update: int | None
    task: str
    use: str
    weight: float | None
    score: Score
    transcript: str


def _recorded_rows(
    folder: Path, most: int, token_texts: TokenTexts | None, updates: Collection[int]
) -> tuple[list[_Rollout], str]:
    """The rollouts of the page by update, and a note about the others."""
    sizes = recorded_sizes(folder)
    chosen = sizes.keys() & set(updates) if updates else _spread(sizes, most)
    episodes, chars = Counter[int | None](), Counter[int | None]()
    rows: list[_Rollout] = []
    for one in read_recorded(folder, chosen):
        # An update may be more than its share of the page: its first episodes stand for it.
        if max(episodes[one.update] / most, chars[one.update] / MOST_CHARS) * len(chosen) < 1:
            rows += _rows_of(one, token_texts)
            episodes[one.update] += 1
            chars[one.update] += len(rows[-1].transcript)
    rows.sort(key=lambda row: -1 if row.update is None else row.update)
    shown, total = episodes.total(), sum(count for count, _ in sizes.values())
    note = f"{shown:,} of {total:,} episodes, from {len(chosen)} of {len(sizes)} updates"
    return rows, "" if shown == total else f"{note}; ludic view --updates chooses others"


def _spread(sizes: Mapping[int | None, tuple[int, int]], most: int) -> set[int | None]:
    """The updates of a page: all, or as many as fit at their mean size, the first and the last too.

    >>> sorted(_spread({update: (10, 1_000) for update in range(101)}, most=50))
    [0, 25, 50, 75, 100]
    """
    updates = sorted(sizes, key=lambda update: -1 if update is None else update)
    episodes, chars = (sum(size[i] for size in sizes.values()) for i in (0, 1))
    share = min(1.0, most / max(episodes, 1), MOST_CHARS / max(chars, 1))
    count = max(2, int(share * len(updates)))
    if count >= len(updates):
        return set(updates)
    return {updates[round(i * (len(updates) - 1) / (count - 1))] for i in range(count)}


def _rows_of(one: Recorded, token_texts: TokenTexts | None) -> Iterator[_Rollout]:
    """A row for each rollout of an episode, or one for an episode that failed."""
    for i, rollouts in enumerate([(r,) for r in one.episode.rollouts] or [()]):
        episode = replace(one.episode, rollouts=rollouts)
        weights = one.weights[i] if one.weights and rollouts else None
        shown = transcript(episode, token_texts)
        for rollout in shown["rollouts"]:
            for step, weight in zip(rollout["steps"], weights or (), strict=False):
                step["weight"] = weight
        yield _Rollout(
            env_id=episode.task.env_id,
            update=one.update,
            task=task_key(replace(episode.task, group="")),
            use=one.use,
            weight=max(weights, key=abs) if weights else None,
            score=score(episode),
            transcript=json.dumps(shown, separators=(",", ":")),
        )


def _records(path: Path) -> Iterator[JSON]:
    """The records of a file that may be growing; an unfinished last line is left out."""
    if path.exists():
        with path.open(encoding="utf-8") as file:
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
