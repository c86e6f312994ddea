"""Problems from the rows of datasets, in the fields of HumanEval, MBPP, MBPP+, APPS and Ludic."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from ludic_gym.data.row import Row, parse_json, text_field
from ludic_gym.envs.code.published import (
    SITES_PRELUDE,
    inputs_of,
    livecodebench_problem,
    plus_tests,
)
from ludic_gym.envs.core.code import Problem
from ludic_gym.errors import DataError
from ludic_gym.graders.programs.plain import NotPlain, encoded
from ludic_gym.graders.programs.types import AssertTests, CallTests, StdinTests

# Of the published program for the one task of HumanEval+ whose results are not unique.
ROOT_ATOL = 1e-4
_COMPARED = ("value", "unordered", "truth", "wrapped")
_COMPARATORS = ("exact", "words", "numbers", "lines")


def function_problem(row: Row) -> Problem:
    """The problem of a row that asks for a function. Raises DataError for unknown fields."""
    # Rows of MBPP+ have an entry point too, so they are recognised first.
    if "base_input" in row.fields:
        # The solutions of HumanEval+ are bodies of functions, those of MBPP+ whole programs.
        prompt, solution = text_field(row, "prompt"), text_field(row, "canonical_solution")
        if solution.lstrip("\n")[:1].isspace():
            return _plus_problem(prompt, prompt + solution, plus_tests(row, prompt + solution))
        return Problem(prompt.strip().strip('"').strip(), solution, plus_tests(row, solution))
    if "test_list" in row.fields:
        return _mbpp(row)
    if "entry_point" in row.fields:
        return _humaneval(row)
    tests: CallTests | AssertTests
    if "calls" in row.fields:
        tests = _calls(row)
    else:
        tests = AssertTests(
            name=text_field(row, "name"),
            tests=tuple(_texts(row, "tests")),
            prelude=str(row.fields.get("prelude", "")),
            in_place=row.fields.get("in_place") is True,
        )
    return Problem(text_field(row, "prompt"), str(row.fields.get("solution", "")), tests)


def _evalplus_tests(row: Row, reference: str, name: str) -> CallTests:
    """The tests of a row of EvalPlus on the hub, by its inputs and the reference."""
    inputs, atol = inputs_of(text_field(row, "test"), row.where)
    assertions = "\n".join(map(str, row.fields.get("test_list") or ()))
    fields = {"entry_point": name, "base_input": inputs, "assertion": assertions, "atol": atol}
    return plus_tests(Row(row.where, fields), reference)


def _humaneval(row: Row) -> Problem:
    prompt, name = text_field(row, "prompt"), text_field(row, "entry_point")
    if "import numpy" in str(row.fields.get("test")):
        solution = prompt + text_field(row, "canonical_solution")
        return _plus_problem(prompt, solution, _evalplus_tests(row, solution, name))
    test = f"{text_field(row, 'test')}\ncheck(candidate)\n"
    # Imports and helpers in the prompt are available to the program and to the tests.
    tests = AssertTests(name=name, tests=(test,), prelude=with_body(prompt))
    return Problem(prompt, prompt + text_field(row, "canonical_solution"), tests)


def _plus_problem(prompt: str, solution: str, tests: CallTests) -> Problem:
    if tests.name == "find_zero":
        # Any root is right, so that the published program evaluates the polynomial there.
        inputs = json.dumps([list(call) for call in tests.calls])
        check = f"for (xs,) in {inputs}:\n    assert abs(poly(xs, find_zero(xs))) <= {ROOT_ATOL}"
        return Problem(
            prompt,
            solution,
            AssertTests(name=tests.name, tests=(check,), prelude=with_body(prompt)),
        )
    return Problem(prompt, solution, replace(tests, prelude=with_body(prompt)))


def with_body(prompt: str) -> str:
    """A prompt that ends in the head of a function, as a complete program."""
    return f"{prompt}\n    pass\n" if prompt.rstrip().endswith(("'", '"', ":")) else prompt


def _mbpp(row: Row) -> Problem:
    code = text_field(row, "code")
    tests = _texts(row, "test_list")
    # A row of MBPP does not name its function; helpers stand before it.
    names = re.findall(r"^def\s+(\w+)", code, re.MULTILINE)
    named = [name for name in names if any(re.search(rf"\b{name}\(", t) for t in tests)]
    if not named:
        raise DataError(f"{row.where}: no test calls a function of the field 'code', {names}")
    if "test" in row.fields:
        # A row of MBPP+ on the hub.
        return Problem(text_field(row, "prompt"), code, _evalplus_tests(row, code, named[-1]))
    # The two published versions of MBPP have different field names.
    key = "prompt" if "prompt" in row.fields else "text"
    setup = row.fields.get("test_imports") or row.fields.get("test_setup_code") or ""
    prelude = setup if isinstance(setup, str) else "\n".join(map(str, setup))
    task = f"{text_field(row, key)}\n{tests[0]}"
    return Problem(task, code, AssertTests(name=named[-1], tests=tuple(tests), prelude=prelude))


def _calls(row: Row) -> CallTests:
    calls, expected = row.fields["calls"], row.fields.get("expected")
    if not (isinstance(calls, list) and isinstance(expected, list) and len(calls) > 0):
        raise DataError(f"{row.where}: 'calls' and 'expected' must be lists, got {expected!r}")
    if len(calls) != len(expected) or not all(isinstance(call, list) for call in calls):
        raise DataError(
            f"{row.where}: every one of {len(calls)} calls is a list of arguments and "
            f"has one result, got {len(expected)}"
        )
    try:
        return CallTests(
            name=text_field(row, "name"),
            calls=tuple(tuple(encoded(part) for part in call) for call in calls),
            expected=tuple(map(encoded, expected)),
            prelude=str(row.fields.get("prelude", "")),
            atol=float(row.fields.get("atol", 1e-6)),
            compared=_choice(row, "compared", _COMPARED),
        )
    except NotPlain as error:
        raise DataError(f"{row.where}: 'calls' or 'expected' holds {error}") from error


def stdin_problem(row: Row) -> Problem | None:
    """The problem of a row that asks for a whole program; None for a row of APPS without cases.

    A row of APPS may ask for a function too, which is tested by calls.
    Raises DataError if a field is missing or of another type.
    """
    if "input_output" in row.fields:
        return _apps(row)
    if "public_test_cases" in row.fields:
        return livecodebench_problem(row)
    cases = row.fields.get("cases")
    if (
        not isinstance(cases, list)
        or not cases
        or not all(
            isinstance(case, list) and len(case) == 2 and all(isinstance(t, str) for t in case)
            for case in cases
        )
    ):
        raise DataError(f"{row.where}: 'cases' must be pairs of texts, got {str(cases)[:80]!r}")
    tests = StdinTests(
        cases=tuple((case[0], case[1]) for case in cases),
        comparator=_choice(row, "comparator", _COMPARATORS, "words"),
        tolerance=float(row.fields.get("tolerance", 1e-6)),
    )
    return Problem(text_field(row, "prompt"), str(row.fields.get("solution", "")), tests)


def _apps(row: Row) -> Problem | None:
    tests = _json(row, "input_output", {})
    if not isinstance(tests, dict):
        return None
    cases = list(zip(tests.get("inputs", ()), tests.get("outputs", ()), strict=False))
    solutions = _json(row, "solutions", [])
    solution = str(solutions[0] if isinstance(solutions, list) and solutions else "")
    text = text_field(row, "question")
    if name := tests.get("fn_name"):
        return _apps_function(row, str(name), cases, text, solution)
    pairs = tuple((_join_texts(text), _join_texts(wanted)) for text, wanted in cases)
    return Problem(text, solution, StdinTests(cases=pairs)) if pairs else None


def _apps_function(
    row: Row, name: str, cases: list[tuple[Any, Any]], text: str, solution: str
) -> Problem | None:
    """The problem of a row that calls a function; None if it has no calls."""
    if not cases or not name.isidentifier() or not all(isinstance(call, list) for call, _ in cases):
        return None
    # The rows from LeetCode ask for a method, which their starter code shows.
    starter = str(row.fields.get("starter_code") or "").strip()
    in_class = re.search(r"^class Solution\b", starter or solution, re.MULTILINE)
    kind = "method" if in_class else "function"
    start = f" It begins with:\n```python\n{starter}\n```" if starter else ""
    tests = CallTests(
        name=f"Solution.{name}" if in_class else name,
        calls=tuple(tuple(map(encoded, call)) for call, _ in cases),
        expected=tuple(encoded(wanted) for _, wanted in cases),
        prelude=SITES_PRELUDE,
        # Results stand in lists of their own in most of these rows, but not in all.
        compared="wrapped",
    )
    return Problem(f"{text}\n\nWrite the {kind} `{name}`.{start}", solution, tests)


def _json(row: Row, name: str, empty: object) -> object:
    text = row.fields.get(name)
    # Some rows of APPS have numbers with more digits than Python's limit for int().
    return parse_json(row, name, text) if isinstance(text, str) and text.strip() else empty


def _join_texts(text: object) -> str:
    # Rows of APPS have texts, or lists of lines.
    return "\n".join(map(str, text)) if isinstance(text, list) else str(text)


def _texts(row: Row, name: str) -> list[str]:
    texts = row.fields.get(name)
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise DataError(f"{row.where}: field {name!r} must be a list of texts, got {texts!r}")
    return texts


def _choice(row: Row, name: str, choices: tuple[str, ...], default: str = "value") -> Any:  # noqa: ANN401
    value = row.fields.get(name, default)
    if value not in choices:
        raise DataError(f"{row.where}: field {name!r} is one of {choices}, got {value!r}")
    return value
