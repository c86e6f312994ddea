"""Rows of LiveCodeBench (Jain et al. 2024, arXiv:2403.07974): programs and methods to write.

The private cases are published as a pickled text in zlib and base64. Unpickling can run any
program, so that the text is read from the instructions of the pickle, which are not executed.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import zlib
from collections.abc import Mapping
from typing import Any

from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.core.code import Problem
from ludic_gym.errors import DataError
from ludic_gym.graders.programs.plain import encoded
from ludic_gym.graders.programs.types import CallTests, StdinTests

# What solutions use without an import, as on the sites that they come from.
SITES_PRELUDE = """\
import collections, functools, heapq, itertools, math, random, re, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import ceil, floor, gcd, log, log2, sqrt
from typing import *
"""
# The largest private cases have some hundred megabytes.
LARGEST = 2**30
CASE_S = 6.0
# Instructions of a pickle that holds one text, and no object.
_HARMLESS = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"}
_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}


def livecodebench_problem(row: Row) -> Problem:
    """The problem of a row. Raises DataError for cases that cannot be read, or of two kinds."""
    cases = [*_cases(row, "public_test_cases"), *_cases(row, "private_test_cases")]
    kinds = {case.get("testtype") for case in cases}
    text = text_field(row, "question_content")
    if kinds == {"stdin"}:
        pairs = tuple((str(case["input"]), str(case["output"])) for case in cases)
        return Problem(text, "", StdinTests(cases=pairs, comparator="lines", case_s=CASE_S))
    if kinds == {"functional"}:
        return _method(row, text, cases)
    raise DataError(f"{row.where}: cases are of the type stdin or functional, got {kinds}")


def _method(row: Row, text: str, cases: list[Mapping[str, Any]]) -> Problem:
    starter = text_field(row, "starter_code").strip()
    about = _parsed(row, "metadata", str(row.fields.get("metadata")))
    name = about.get("func_name") if isinstance(about, Mapping) else None
    if not isinstance(name, str) or not name.isidentifier():
        raise DataError(f"{row.where}: field 'metadata' must have func_name, got {about!r:.80}")
    tests = CallTests(
        name=f"Solution.{name}" if "class Solution" in starter else name,
        # An argument a line.
        calls=tuple(
            tuple(encoded(_parsed(row, "input", line)) for line in str(case["input"]).split("\n"))
            for case in cases
        ),
        expected=tuple(encoded(_parsed(row, "output", str(case["output"]))) for case in cases),
        prelude=SITES_PRELUDE,
    )
    return Problem(
        f"{text}\n\nWrite the method `{name}`. It begins with:\n```python\n{starter}\n```",
        "",
        tests,
    )


def _cases(row: Row, name: str) -> list[Mapping[str, Any]]:
    """The cases of a field: JSON, or JSON in the publisher's packing; [] without the field."""
    text = row.fields.get(name) or "[]"
    if not isinstance(text, str):
        raise DataError(f"{row.where}: field {name!r} must be a text, got {text!r:.80}")
    found = _parsed(row, name, text if text.lstrip().startswith("[") else unpacked(row, name, text))
    if not isinstance(found, list) or not all(_is_case(case) for case in found):
        raise DataError(f"{row.where}: field {name!r} must be cases of input and output")
    return found


def _is_case(case: object) -> bool:
    return isinstance(case, Mapping) and {"input", "output"} <= case.keys()


def unpacked(row: Row, name: str, text: str) -> str:
    """The text of a pickle in zlib and base64, without unpickling. Raises DataError for others."""
    try:
        stream = zlib.decompressobj()
        data = stream.decompress(base64.b64decode(text, validate=True), LARGEST)
        if stream.unconsumed_tail or not stream.eof:
            raise ValueError(f"more than {LARGEST} bytes, or cut off")
        found = []
        for operation, argument, _ in pickletools.genops(data):
            if operation.name in _TEXTS:
                found.append(argument)
            elif operation.name not in _HARMLESS:
                raise ValueError(f"the pickle holds more than a text: {operation.name}")
    except (ValueError, zlib.error, binascii.Error) as error:
        raise DataError(f"{row.where}: field {name!r} cannot be read ({error})") from error
    if len(found) != 1:
        raise DataError(f"{row.where}: field {name!r} holds {len(found)} texts in place of one")
    return str(found[0])


def _parsed(row: Row, name: str, text: str) -> Any:  # noqa: ANN401 (JSON)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{row.where}: field {name!r} is not JSON ({error}): {text[:80]!r}"
        ) from error
