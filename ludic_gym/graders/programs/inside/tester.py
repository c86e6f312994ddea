"""Runner of test programs, whose `candidate` sends calls out and receives their results."""

from __future__ import annotations

import builtins
from typing import Any

from ludic_gym.graders.programs.inside.channel import Channel, text_of
from ludic_gym.graders.programs.inside.plain import NotPlain, decoded, encoded


class Broken(BaseException):
    """The test cannot be run. No test can catch this by `except Exception`."""


def main() -> None:
    """Run the tests of the first request, one after the other, and report each."""
    channel = Channel()
    channel.send(["started"])
    request = channel.receive()
    space: dict[str, Any] = {"__name__": "tests"}
    try:
        exec(compile(request["prelude"], "prelude.py", "exec", dont_inherit=True), space)
        tests = [compile(t, "tests.py", "exec", dont_inherit=True) for t in request["tests"]]
    except BaseException as error:
        channel.send(["broken", text_of(error)])
        return
    calls: list[str] = []
    space["candidate"] = space[request["name"]] = stand_in(channel, calls, request["in_place"])
    for test in tests:
        channel.send(outcome(test, space, calls))
        if channel.receive() != "on":
            return
    channel.send(["done"])


def outcome(test: Any, space: dict[str, Any], calls: list[str]) -> list[str]:  # noqa: ANN401
    """["passed"], ["failed", why], or ["broken", why] for a fault of the test itself."""
    calls.clear()
    try:
        exec(test, space)
    except AssertionError as error:
        return ["failed", text_of(error)]
    except BaseException as error:
        # An error before the first call is the test's own, such as a missing module.
        return ["failed" if calls else "broken", text_of(error)]
    return ["passed"]


def stand_in(channel: Channel, calls: list[str], in_place: bool) -> Any:  # noqa: ANN401
    """A function that sends its calls out and returns the results from outside."""

    def candidate(*positional: object, **named: object) -> object:
        try:
            call = ["call", encoded(positional), encoded(named)]
        except NotPlain as error:
            channel.send(["broken", f"the test gives the function {error}"])
            raise Broken from error
        calls.append("call")
        channel.send(call)
        kind, *content = channel.receive()
        if kind == "raised":
            raise raised(*content)
        for argument, tree in zip(positional, content[1] if in_place else (), strict=False):
            replace(argument, decoded(tree))
        return decoded(content[0])

    return candidate


def replace(argument: Any, now: Any) -> None:  # noqa: ANN401 (any plain value)
    """Apply the function's change to a list, dict or set."""
    if isinstance(argument, list):
        argument[:] = now
    elif isinstance(argument, dict | set):
        argument.clear()
        argument.update(now)


def raised(name: str, text: str) -> Exception:
    """The exception that the function raised, if it is one of Python's own."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        except TypeError:
            pass
    return RuntimeError(text)


if __name__ == "__main__":
    main()
