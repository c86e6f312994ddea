"""A benchmark's episodes as one table, for pandas, polars or a database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from ludic_gym.bench.folder import read_request, transcript_path
from ludic_gym.bench.result import Score
from ludic_gym.errors import ConfigError

PARQUET = "episodes.parquet"
# Rows that are converted at a time, to bound the memory.
ROWS_AT_ONCE = 1_000


def write_parquet(folder: Path) -> Path:
    """Write the folder's episodes.parquet, a row per episode; its path.

    Columns: env, kwargs (JSON), policy, ludic, seed, the fields of `Score`, and record, the whole
    line of the transcripts. Raises ConfigError without pyarrow, or for a folder of another kind.
    """
    try:
        from pyarrow import Table, bool_, float64, int64, parquet, schema, string
    except ModuleNotFoundError as error:
        raise ConfigError("Parquet needs pyarrow: pip install 'ludic-gym[data]'") from error
    kinds = {"int": int64(), "bool": bool_(), "float": float64(), "str": string()}
    scores = [(f.name, kinds[str(f.type).removesuffix(" | None")]) for f in fields(Score)]
    texts = [(name, string()) for name in ("env", "kwargs", "policy", "ludic", "seed")]
    columns = schema([*texts, *scores, ("record", string())])
    path = folder / PARQUET
    with parquet.ParquetWriter(path, columns) as writer:
        for rows in _pieces(_rows(folder)):
            writer.write_table(Table.from_pylist(rows, columns))
    return path


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    for env_id in read_request(folder)["envs"]:
        with transcript_path(folder, env_id).open(encoding="ascii") as file:
            for line in file:
                record = json.loads(line)
                yield {
                    "env": env_id,
                    "kwargs": json.dumps(record["task"]["kwargs"]),
                    "policy": record["policy"],
                    "ludic": record["ludic"],
                    # Seeds have any size.
                    "seed": str(record["task"]["seed"]),
                    **record["score"],
                    "record": line.rstrip("\n"),
                }


def _pieces(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    piece: list[dict[str, Any]] = []
    for row in rows:
        piece.append(row)
        if len(piece) == ROWS_AT_ONCE:
            yield piece
            piece = []
    if piece:
        yield piece
