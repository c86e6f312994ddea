"""A benchmark's episodes as one table, for pandas, polars or a database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

from ludic_gym.bench.folder import read_request, transcript_path
from ludic_gym.bench.result import Score
from ludic_gym.extras import optional

PARQUET = "episodes.parquet"
# Rows that are converted at a time, to bound the memory.
ROWS_AT_ONCE = 1_000


def write_parquet(folder: Path) -> Path:
    """Write the folder's episodes.parquet, a row per episode; its path.

    Columns: env, kwargs (JSON), policy, ludic, seed, the fields of `Score`, and record, the whole
    line of the transcripts.
    Raises MissingPackage without pyarrow, ConfigError for a folder of another kind.
    """
    arrow = optional("pyarrow", "ludic-gym[data]")
    parquet = optional("pyarrow.parquet", "ludic-gym[data]")
    text = arrow.string()
    kinds = {"str": text, "int": arrow.int64(), "bool": arrow.bool_(), "float": arrow.float64()}
    scores = [(f.name, kinds[str(f.type).removesuffix(" | None")]) for f in fields(Score)]
    texts = [(name, text) for name in ("env", "kwargs", "policy", "ludic", "seed")]
    columns = arrow.schema([*texts, *scores, ("record", text)])
    path, rows = folder / PARQUET, _rows(folder)
    with parquet.ParquetWriter(path, columns) as writer:
        while piece := list(islice(rows, ROWS_AT_ONCE)):
            writer.write_table(arrow.Table.from_pylist(piece, columns))
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
