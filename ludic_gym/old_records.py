"""Records of the version before, written anew as this one has them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from ludic_gym.records import SCHEMA, VERSION, episode_from_json, record_line

BEFORE = 4
_FIELDS = {"schema", "version", "index", "task", "rollouts", "error", "blame"}


def convert_records(folder: Path | str) -> Iterator[Path]:
    """Write all files of a folder anew that hold records of the version before; their paths.

    Each is replaced as a whole, and lines of other kinds stay as they are. A file that is being
    written to would lose lines.
    Raises DataError for a record that cannot be read.
    """
    for path in sorted(Path(folder).rglob("*.jsonl*")):
        data = path.read_bytes()
        is_packed = path.suffix == ".gz"
        lines = (gzip.decompress(data) if is_packed else data).splitlines(keepends=True)
        converted = b"".join(map(_converted, lines))
        if converted != b"".join(lines):
            draft = path.with_suffix(".new")
            draft.write_bytes(gzip.compress(converted, 1, mtime=0) if is_packed else converted)
            draft.replace(path)
            yield path


def _converted(line: bytes) -> bytes:
    # A crash may have cut the last line.
    if SCHEMA.encode() not in line or not line.endswith(b"\n"):
        return line
    record = json.loads(line)
    if record.get("schema") != SCHEMA or record["version"] != BEFORE:
        return line
    for rollout in record["rollouts"]:
        for call in (c for step in rollout["steps"] for c in step["decision"]["completions"]):
            if call["call"]:
                call["call"]["kept"] = call["call"].pop("repeated")
    about = {name: value for name, value in record.items() if name not in _FIELDS}
    return record_line(episode_from_json(record | {"version": VERSION}), about)
