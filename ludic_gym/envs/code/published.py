"""Rows of MBPP+ (arXiv:2305.01210) and LiveCodeBench (arXiv:2403.07974) as they are published.

The inputs are JSON, which has no tuples, sets or complex numbers. If the assertions of a row call
the function with such values, its inputs are converted to the same shapes.

The private cases are published as a pickled text in zlib and base64. Unpickling can run any
program, so that the text is read from the instructions of the pickle, which are not executed.
"""

from __future__ import annotations

import ast
import base64
import binascii
import math
import pickletools
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ludic_gym.data.row import Row, parse_json, text_field
from ludic_gym.envs.core.code import Problem
from ludic_gym.errors import DataError
from ludic_gym.graders.programs.plain import NotPlain, Tree, encoded
from ludic_gym.graders.programs.types import CallTests, Compared, StdinTests

ATOL = 1e-6


@dataclass(frozen=True, slots=True)
class Shape:
    """The type of a value that JSON does not have ("tuple", ...), and the shape of its elements."""

    kind: str = ""
    part: Shape | None = None


PLAIN = Shape()


def plus_tests(row: Row, reference: str) -> CallTests:
    """The tests of a row of MBPP+, without the few inputs that are nested too deep for a tree.

    Raises DataError if a field is missing or of another type.
    """
    name = text_field(row, "entry_point")
    # The inputs of MBPP itself, and those that MBPP+ adds; a row may have only one kind.
    inputs = [*(row.fields.get("base_input") or ()), *(row.fields.get("plus_input") or ())]
    if not inputs or not all(isinstance(call, list) for call in inputs):
        raise DataError(f"{row.where}: 'base_input' must be lists of arguments, got {inputs!r:.80}")
    assertion = str(row.fields.get("assertion", ""))
    shapes = argument_shapes(assertion, name, row.where)
    calls = []
    for call in inputs:
        # A call that a tree cannot hold is left out: the others still test the program.
        with suppress(NotPlain):
            pairs = zip_longest(call, shapes[: len(call)], fillvalue=PLAIN)
            calls.append(tuple(shaped_tree(value, shape) for value, shape in pairs))
    return CallTests(
        name=name,
        calls=tuple(calls),
        reference=reference,
        atol=float(row.fields.get("atol") or ATOL),
        compared=compare(assertion, name),
    )


def inputs_of(program: str, where: str) -> tuple[list[list[Any]], float]:
    """The calls in a test program of EvalPlus on the hub, and the tolerance of their results.

    The program imports NumPy, which no sandbox has, so that its list `inputs` is read, and its
    results are those of the reference. Nothing of it is run.
    Raises DataError for a program without a list `inputs` of plain values.
    """
    tree = parse(program, where)
    atol = ATOL
    node_of_inputs = None
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "inputs":
            node_of_inputs = node.value
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "assertion":
            tolerance = node.args[-1]
            if isinstance(tolerance, ast.Constant) and isinstance(tolerance.value, int | float):
                atol = float(tolerance.value) or ATOL
    try:
        inputs = ast.literal_eval(_Constants().visit(node_of_inputs)) if node_of_inputs else None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: `inputs` of the tests are no plain values ({error})") from error
    if not isinstance(inputs, list) or not all(isinstance(call, list) for call in inputs):
        raise DataError(f"{where}: the tests have no list `inputs` of lists, got {inputs!r:.80}")
    return inputs, atol


class _Constants(ast.NodeTransformer):
    """Puts the numbers in place of the names inf and nan."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A constant for a known name, else the name."""
        numbers = {"inf": math.inf, "nan": math.nan}
        return ast.Constant(numbers[node.id]) if node.id in numbers else node


def parse(program: str, where: str) -> ast.Module:
    """The syntax tree of assertions. Raises DataError for what is not Python."""
    try:
        return ast.parse(program)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise DataError(f"{where}: the assertions are not valid Python ({error})") from error


def compare(assertion: str, name: str) -> Compared:
    """The comparison that the assertions make: of sets, of truth values, or of values."""
    if re.search(rf"assert set\({name}\(", assertion):
        return "unordered"
    tests = [line for line in assertion.splitlines() if line.startswith("assert ")]
    # `assert f(x)` and `assert not f(x)` accept any true or false value.
    bare = [line for line in tests if re.match(rf"assert (not )?\(?{name}\(", line)]
    truth = tests and bare == tests and not any("==" in line for line in tests)
    return "truth" if truth else "value"


def argument_shapes(assertion: str, name: str, where: str) -> list[Shape]:
    """The shape of each argument in the assertions."""
    tree = parse(assertion, where)
    # MBPP+ writes all numbers of a call as strings if one of them is complex.
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    number = Shape("complex") if any(isinstance(c, complex) for c in constants) else PLAIN
    shapes: list[Shape] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            here = [shape_of(argument, number) for argument in node.args]
            # Assertions of one row may differ in a detail, such as an empty list.
            shapes = [merge(a, b) for a, b in zip(shapes or here, here, strict=False)]
    return shapes


def shape_of(node: ast.expr, number: Shape) -> Shape:
    """The shape of a literal; `number` is the shape of numbers."""
    kinds = {ast.List: "list", ast.Tuple: "tuple", ast.Set: "set"}
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        part = PLAIN
        for element in node.elts:
            part = merge(part, shape_of(element, number))
        return Shape(kinds[type(node)], part)
    is_number = isinstance(node, ast.Constant) and isinstance(node.value, int | float | complex)
    return number if is_number else PLAIN


def merge(a: Shape, b: Shape) -> Shape:
    """The more specific shape; a list if the two disagree."""
    if PLAIN in (a, b):
        return a if b == PLAIN else b
    kind = a.kind if a.kind == b.kind else "list"
    return Shape(kind, merge(a.part or PLAIN, b.part or PLAIN))


def shaped_tree(value: Any, shape: Shape) -> Tree:  # noqa: ANN401 (JSON)
    """A value as a tree of the shape, or as it is if it cannot have that shape."""
    if isinstance(value, list) and shape.kind in ("list", "tuple", "set"):
        parts = [shaped_tree(part, shape.part or PLAIN) for part in value]
        return parts if shape.kind == "list" else {shape.kind: parts}
    if shape.kind == "complex" and isinstance(value, str):
        try:
            return encoded(complex(value))
        except ValueError:
            return value
    return encoded(value)


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
        return Problem(text, "", StdinTests(cases=pairs, comparator="lines"))
    if kinds == {"functional"}:
        return _method(row, text, cases)
    raise DataError(f"{row.where}: cases are of the type stdin or functional, got {kinds}")


def _method(row: Row, text: str, cases: list[Mapping[str, Any]]) -> Problem:
    starter = text_field(row, "starter_code").strip()
    about = parse_json(row, "metadata", str(row.fields.get("metadata")))
    name = about.get("func_name") if isinstance(about, Mapping) else None
    if not isinstance(name, str) or not name.isidentifier():
        raise DataError(f"{row.where}: field 'metadata' must have func_name, got {about!r:.80}")
    tests = CallTests(
        name=f"Solution.{name}" if "class Solution" in starter else name,
        # An argument a line.
        calls=tuple(
            tuple(
                encoded(parse_json(row, "input", line)) for line in str(case["input"]).split("\n")
            )
            for case in cases
        ),
        expected=tuple(encoded(parse_json(row, "output", str(case["output"]))) for case in cases),
        prelude=SITES_PRELUDE,
    )
    return Problem(
        f"{text}\n\nWrite the method `{name}`. It begins with:\n```python\n{starter}\n```",
        "",
        tests,
        starter,
    )


def _cases(row: Row, name: str) -> list[Mapping[str, Any]]:
    """The cases of a field: JSON, or JSON in the publisher's packing; [] without the field."""
    text = row.fields.get(name) or "[]"
    if not isinstance(text, str):
        raise DataError(f"{row.where}: field {name!r} must be a text, got {text!r:.80}")
    cases = parse_json(
        row, name, text if text.lstrip().startswith("[") else unpack(row, name, text)
    )
    if not isinstance(cases, list) or not all(
        isinstance(case, Mapping) and {"input", "output"} <= case.keys() for case in cases
    ):
        raise DataError(f"{row.where}: field {name!r} must be cases of input and output")
    return cases


def unpack(row: Row, name: str, text: str) -> str:
    """The text of a pickle in zlib and base64, without unpickling. Raises DataError for others."""
    try:
        stream = zlib.decompressobj()
        data = stream.decompress(base64.b64decode(text, validate=True), LARGEST)
        if stream.unconsumed_tail or not stream.eof:
            raise ValueError(f"more than {LARGEST} bytes, or cut off")
        texts = []
        for operation, argument, _ in pickletools.genops(data):
            if operation.name in _TEXTS:
                texts.append(argument)
            elif operation.name not in _HARMLESS:
                raise ValueError(f"the pickle holds more than a text: {operation.name}")
    except (ValueError, zlib.error, binascii.Error) as error:
        raise DataError(f"{row.where}: field {name!r} cannot be read ({error})") from error
    if len(texts) != 1:
        raise DataError(f"{row.where}: field {name!r} holds {len(texts)} texts in place of one")
    return str(texts[0])
