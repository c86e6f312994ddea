"""Problems from the rows of data sets of programs, in the columns of their publishers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ludic_gym.data.load import Several
from ludic_gym.data.row import Row, parse_json, text_field
from ludic_gym.envs.code.published import (
    SITES_PRELUDE,
    inputs_of,
    livecodebench_problem,
    plus_tests,
)
from ludic_gym.envs.core.code import Problem
from ludic_gym.errors import DataError
from ludic_gym.graders.programs.blocks import program_in
from ludic_gym.graders.programs.plain import NotPlain, encoded
from ludic_gym.graders.programs.types import AssertTests, CallTests, StdinTests

# Of the published program for the one task of HumanEval+ whose results are not unique.
ROOT_ATOL = 1e-4
_COMPARED = ("value", "unordered", "truth", "wrapped")
_COMPARATORS = ("exact", "words", "numbers", "lines")
# Python 3 among the languages of CodeContests, by number and by name.
PYTHON_3 = (3, "PYTHON3")


def function_problem(row: Row) -> Problem:
    """The problem of a row that asks for a function. Raises DataError for unknown fields."""
    read = (read for column, read in FUNCTION_LAYOUTS.items() if column in row.fields)
    return next(read, _asserted)(row)


def _evalplus(row: Row) -> Problem:
    # The solutions of HumanEval+ are bodies of functions, those of MBPP+ whole programs.
    prompt, solution = text_field(row, "prompt"), text_field(row, "canonical_solution")
    if solution.lstrip("\n")[:1].isspace():
        return _plus_problem(prompt, prompt + solution, plus_tests(row, prompt + solution))
    return Problem(prompt.strip().strip('"').strip(), solution, plus_tests(row, solution))


def _asserted(row: Row) -> Problem:
    tests = AssertTests(
        name=text_field(row, "name"),
        tests=tuple(_texts(row, "tests")),
        prelude=str(row.fields.get("prelude", "")),
        in_place=row.fields.get("in_place") is True,
    )
    return Problem(text_field(row, "prompt"), str(row.fields.get("solution", "")), tests)


def _called(row: Row) -> Problem:
    return Problem(text_field(row, "prompt"), str(row.fields.get("solution", "")), _calls(row))


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
    return Problem(prompt, prompt + text_field(row, "canonical_solution"), tests, prompt)


def _plus_problem(prompt: str, solution: str, tests: CallTests) -> Problem:
    if tests.name == "find_zero":
        # Any root is right, so that the published program evaluates the polynomial there.
        inputs = json.dumps([list(call) for call in tests.calls])
        check = f"for (xs,) in {inputs}:\n    assert abs(poly(xs, find_zero(xs))) <= {ROOT_ATOL}"
        return Problem(
            prompt,
            solution,
            AssertTests(name=tests.name, tests=(check,), prelude=with_body(prompt)),
            prompt,
        )
    return Problem(prompt, solution, replace(tests, prelude=with_body(prompt)), prompt)


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


# A column that a layout has -> its reader. Those of EvalPlus have the others' columns too.
FUNCTION_LAYOUTS: Mapping[str, Callable[[Row], Problem]] = {
    "base_input": _evalplus,
    "test_list": _mbpp,
    "entry_point": _humaneval,
    "calls": _called,
}


def program_problem(row: Row) -> Problem | Several[Problem]:
    """The problem of a row that asks for a whole program, or for a function tested by calls.

    A row without cases has none. Raises DataError if a field is missing or of another type.
    """
    if "public_test_cases" in row.fields:
        return livecodebench_problem(row)
    prompt, solution = text_field(row, "prompt"), _solution(row)
    name, cases = _named_cases(row)
    if name:
        return _site_function(row, name, cases, prompt, solution)
    if not cases:
        return Several()
    tests = StdinTests(
        cases=tuple((_join_texts(text), _join_texts(wanted)) for text, wanted in cases),
        comparator=_choice(row, "comparator", _COMPARATORS, "words"),
        tolerance=float(row.fields.get("tolerance", 1e-6)),
    )
    return Problem(prompt, solution, tests)


def _named_cases(row: Row) -> tuple[str, list[tuple[Any, Any]]]:
    """The function that is called, "" for programs, and the cases: input and expected output.

    Tests are pairs; an object of lists, "inputs" and "outputs" (APPS, TACO, Eurus) or "input" and
    "output" (CodeContests), or several of these; or objects of one case each (LiveCodeBench,
    DeepCoder), whose function may be named in their metadata or that of the row.
    """
    tests = row.fields.get("tests")
    if isinstance(tests, str) and tests.strip():
        tests = parse_json(row, "tests", tests)
    parts = [tests] if isinstance(tests, Mapping) else tests or []
    names: set[str] = set()
    cases: list[tuple[Any, Any]] = []
    for part in parts if isinstance(parts, list) else [parts]:
        if isinstance(part, list) and len(part) == 2 and all(isinstance(p, str) for p in part):
            cases.append((part[0], part[1]))
        elif isinstance(part, Mapping) and part.keys() >= {"inputs", "outputs"}:
            names.add(str(part.get("fn_name") or ""))
            cases += zip(part["inputs"], part["outputs"], strict=False)
        elif isinstance(part, Mapping) and part.keys() >= {"input", "output"}:
            name = _function_name(row, part)
            # A list is one call's arguments if the case says how it is tested.
            alone = name or "type" in part or "testtype" in part or isinstance(part["input"], str)
            inputs, outputs = ([part[key]] if alone else part[key] for key in ("input", "output"))
            names.add(name)
            cases += zip(inputs, outputs, strict=False)
        else:
            raise DataError(
                f"{row.where}: field 'tests' must be pairs of texts, or objects of inputs and "
                f"outputs, got {part!r:.80}"
            )
    if len(names) > 1:
        raise DataError(f"{row.where}: field 'tests' has several functions, {sorted(names)}")
    return "".join(names), cases


def _function_name(row: Row, case: Mapping[str, Any]) -> str:
    if case.get("testtype") == "stdin" or case.get("type") == "stdin_stdout":
        return ""
    about = case.get("metadata") or row.fields.get("metadata") or {}
    about = parse_json(row, "metadata", about) if isinstance(about, str) else about
    name = about.get("func_name") if isinstance(about, Mapping) else None
    return str(case.get("fn_name") or name or "")


def _solution(row: Row) -> str:
    """A program of the field "solution": a text, a list, or lists by language; "" for none."""
    value = row.fields.get("solution")
    if isinstance(value, Mapping):
        both = zip(value.get("language") or (), value.get("solution") or (), strict=False)
        value = [text for language, text in both if language in PYTHON_3]
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = parse_json(row, "solution", value)
    text = value[0] if isinstance(value, list) and value else value
    if not isinstance(text, str):
        return ""
    return program_in(text) if text.lstrip().startswith("```") else text


def _site_function(
    row: Row, name: str, cases: list[tuple[Any, Any]], text: str, solution: str
) -> Problem | Several[Problem]:
    """The problem of a row that calls a function; none if it has no calls."""
    # LiveCodeBench has an argument a line, and all values as JSON.
    lines = bool(cases) and all(isinstance(part, str) for case in cases for part in case)
    if lines:
        cases = [
            (
                [parse_json(row, "tests", line) for line in call.split("\n")],
                parse_json(row, "tests", wanted),
            )
            for call, wanted in cases
        ]
    if not cases or not name.isidentifier() or not all(isinstance(call, list) for call, _ in cases):
        return Several()
    # The rows from LeetCode ask for a method, which their starter code shows.
    starter = str(row.fields.get("starter") or "").strip()
    in_class = re.search(r"^class Solution\b", starter or solution, re.MULTILINE)
    kind = "method" if in_class else "function"
    start = f" It begins with:\n```python\n{starter}\n```" if starter else ""
    tests = CallTests(
        name=f"Solution.{name}" if in_class else name,
        calls=tuple(tuple(map(encoded, call)) for call, _ in cases),
        expected=tuple(encoded(wanted) for _, wanted in cases),
        prelude=SITES_PRELUDE,
        # Results stand in lists of their own in most rows of APPS, but not in all.
        compared="value" if lines else "wrapped",
    )
    return Problem(f"{text}\n\nWrite the {kind} `{name}`.{start}", solution, tests, starter)


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
