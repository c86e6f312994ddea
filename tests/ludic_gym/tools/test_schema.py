import pytest

from ludic_gym.tools.tool import problem_of


@pytest.mark.parametrize(
    ("value", "schema", "problem"),
    [
        (None, {"type": ["string", "null"]}, ""),
        ("x", {"type": ["string", "null"]}, ""),
        (3, {"type": ["string", "null"]}, "it should be of type string or null, got 3"),
        ({"a": 1}, {"type": "object", "additionalProperties": True}, ""),
        (
            {"a": 1},
            {"properties": {"a": {"type": "string"}}},
            "'a' should be of type string, got 1",
        ),
        ({"a": 1}, {"properties": {"a": {"$ref": "#/$defs/A"}}}, ""),
        ([1, [2]], {"items": {"type": "integer"}}, "it[1] should be of type integer, got [2]"),
        (5, {"minimum": 6}, ""),
        ("2026-01-01", {"type": "date"}, ""),
        (5, {"type": ["date", "string"]}, ""),
        (5, {"anyOf": []}, ""),
        ("x", {"anyOf": [True, {"type": "integer"}]}, ""),
        ([5], {"items": True}, ""),
    ],
)
def test_a_schema_from_elsewhere_is_held_to_as_far_as_it_is_understood(value, schema, problem):
    assert problem_of(value, schema, "it") == problem


def test_what_is_nested_too_deep_for_a_recursion_is_taken_where_anything_is():
    deep = []
    for _ in range(5000):
        deep = [deep]
    assert problem_of({"a": deep}, {"properties": {"a": {"type": "array"}}}, "it") == ""
