"""Calls in replies, ToolCalls and PythonToolMath."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.tools.calls import Call, calls_in
from ludic_gym.envs.tools.python_tool_math import PythonToolMathEnv
from ludic_gym.envs.tools.tool_calls import ToolCallsEnv

LOOK = '{"name": "look", "arguments": {"at": 1}}'


@pytest.mark.parametrize(
    "text",
    [
        LOOK,
        f"[{LOOK}]",
        f" {LOOK}.\n",
        f"I look.\n```json\n{LOOK}\n```",
        f"<tool_call>{LOOK}</tool_call>",
        f"<tool_call>{LOOK}",
        f"<think>{LOOK} or not?</think>{LOOK}",
        LOOK.replace("arguments", "parameters"),
    ],
)
def test_a_call_may_be_written_in_several_ways(text):
    assert calls_in(text) == ([Call("look", {"at": 1})], "")


@pytest.mark.parametrize(
    "text",
    ["", "look", "1", '["look"]', '{"name": 1}', '{"name": "x", "arguments": [1]}', "[" * 10**5,
     f'[{LOOK}, 5]', "x" * 10**6],
)  # fmt: skip
def test_anything_else_is_an_error(text):
    calls, problem = calls_in(text)
    assert (calls, bool(problem)) == ([], True)


def numbers(text: str) -> list[int]:
    return list(map(int, re.findall(r"\d+", text)))


def primes_again(text):
    (limit,) = numbers(text)
    return sum(n for n in range(2, limit) if all(n % d for d in range(2, int(n**0.5) + 1)))


def power_again(text):
    base, exponent = numbers(text)
    return sum(int(digit) for digit in str(pow(base, exponent)))


def recurrence_again(text):
    _, _, a, b, n, _, modulus = numbers(text)
    terms = [1, 1]
    while len(terms) < n:
        terms.append(a * terms[-1] + b * terms[-2])
    return terms[n - 1] % modulus


def change_again(text):
    amount, *coins = numbers(text)

    def ways(left, kinds):
        if not kinds:
            return int(left == 0)
        return sum(ways(left - k, kinds[1:]) for k in range(0, left + 1, kinds[0]))

    return ways(amount, sorted(coins, reverse=True))


def divisible_again(text):
    low, high, p, q, r = numbers(text)
    return len([n for n in range(low, high + 1) if (not n % p or not n % q) and n % r])


def collatz_again(text):
    low, high = numbers(text)[-2:]

    def length(n):
        return 1 if n == 1 else 1 + length(3 * n + 1 if n % 2 else n // 2)

    return max(range(low, high + 1), key=lambda n: (length(n), -n))


AGAIN: dict[str, Callable[[str], int]] = {
    "primes": primes_again,
    "power": power_again,
    "recurrence": recurrence_again,
    "change": change_again,
    "divisible": divisible_again,
    "collatz": collatz_again,
}


def test_a_question_about_numbers_is_answered_as_by_another_program():
    env, seen = PythonToolMathEnv(), set()
    for seed in range(24):
        text, info = env.reset(seed=seed)
        assert int(env.oracle_action()) == AGAIN[info["kind"]](text)
        seen.add(info["kind"])
    assert seen == set(AGAIN)


def say(name, **arguments):
    return json.dumps({"name": name, "arguments": arguments})


@pytest.fixture
def errands():
    env = ToolCallsEnv(errands=1)
    env.reset(seed=0)
    return env


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_oracle_does_every_errand(count):
    env = ToolCallsEnv(errands=count)
    for seed in range(60):
        env.reset(seed=seed)
        over = False
        while not over:
            _, reward, over, _, info = env.step(env.oracle_action())
        assert (reward, info["different"]) == (1.0, "")


def test_errands_of_every_kind_come_up():
    texts = {ToolCallsEnv().reset(seed=seed)[0].split()[0] for seed in range(60)}
    assert texts == {"Cancel", "Move", "Make", "Transfer", "Buy"}


def test_whatever_else_changes_is_no_success():
    env = ToolCallsEnv(errands=1)
    env.reset(seed=0)
    env.step(say("put_in_cart", item="tin mug", quantity=1))
    while json.loads(env.oracle_action())["name"] != "finish":
        env.step(env.oracle_action())
    _, reward, _, _, info = env.step(say("finish"))
    assert (reward, info["different"]) == (0.0, "cart")


def test_whoever_does_not_finish_in_time_has_failed():
    env = ToolCallsEnv(errands=1, turns=1)
    env.reset(seed=0)
    _, reward, over, truncated, info = env.step(env.oracle_action())
    assert (reward, over, truncated) == (0.0, True, False)
    assert "not finished" in info["different"]


@pytest.mark.parametrize(
    ("action", "text", "illegal"),
    [
        ("{", "Error: that is not JSON", True),
        ("[" * 100_000, "Error: that is not JSON", True),
        ("7", 'Error: a tool call is {"name": ..., "arguments": {...}}', True),
        (say("fly"), "Error: there is no tool 'fly'; there are list_events, ", True),
        (say("__init__"), "Error: there is no tool '__init__'", True),
        (say("state"), "Error: there is no tool 'state'", True),
        (say("list_events"), "Error: the arguments lack day", True),
        (say("list_events", day="1"), "Error: 'day' should be of type integer", True),
        (say("list_events", day=99), "no appointments", False),
        ("<tool_call>" + say("list_accounts") + "</tool_call>", "daily: ", False),
        ("<think>{}</think>" + say("list_accounts"), "daily: ", False),
        (say("cancel_event", number=99), "Error: there is no appointment 99", False),
        (say("add_event", day=8, hour=9, title="x"), "Error: day 8, 9:00 is no time", False),
        (say("transfer", source="daily", target="rent", amount=10**6), "Error: 1000000", False),
        (say("transfer", source="daily", target="daily", amount=1), "Error: 1 cannot", False),
        (say("transfer", source="daily", target="moon", amount=1), "Error: there is no", False),
        (say("find_items", kind="mug"), "tin mug: 7\nglass mug: 9\nstone mug: 14", False),
        (say("put_in_cart", item="yacht", quantity=1), "Error: there are not 1", False),
        (say("check_out"), "Error: the cart is empty", False),
    ],
)
def test_a_call_that_cannot_be_is_told_why_and_changes_nothing(errands, action, text, illegal):
    before = errands.world.state()
    told, reward, over, _, info = errands.step(action)
    assert told.startswith(text)
    assert told.endswith("Calls left: 15")
    assert (reward, over, info["illegal"]) == (0.0, False, illegal)
    assert errands.world.state() == before
