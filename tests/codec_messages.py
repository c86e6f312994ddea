"""Messages of groups, as the codec of the queue reads them, and what their fields may hold."""

import struct
from collections.abc import Mapping
from dataclasses import fields

import numpy as np
import xxhash
from hypothesis import strategies as st

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=8)
INFOS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | TEXT


def message(body, *, magic=b"LDCG", schema=10):
    """Bytes in the format with a right checksum and any content, as a stranger could send them."""
    head = struct.pack("<4sB", magic, schema)
    return head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head + body)) + body


def bits(value):
    """Equal only for equal bits: the sign of zero, the payload of a nan and the dtype count."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, Mapping):
        return {name: (type(each), bits(each)) for name, each in sorted(value.items())}
    return value


def content(each):
    """All fields of a row or a trajectory, down to the bits."""
    values = {f.name: getattr(each, f.name) for f in fields(each)}
    if "rows" in values:
        values["rows"] = [content(row) for row in values["rows"]]
    return {name: bits(value) for name, value in values.items()}
