"""Runs a test program whose `candidate` is a stand-in: its calls go out, their results come in."""

from __future__ import annotations

import builtins
from typing import Any

from ludic_gym.graders.programs.inside.channel import Channel, text_of
from ludic_gym.graders.programs.inside.plain import NotPlain, decoded, encoded


class Broken(BaseException):
    """The test cannot be run like this; no test may catch that."""


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
    """["passed"], ["failed", why], or ["broken", why] where no function is to blame."""
    calls.clear()
    try:
        exec(test, space)
    except AssertionError as error:
        return ["failed", text_of(error)]
    except BaseException as error:
        # A module that is missing, for instance.
        return ["failed" if calls else "broken", text_of(error)]
    return ["passed"]


def stand_in(channel: Channel, calls: list[str], in_place: bool) -> Any:  # noqa: ANN401
    """A function whose calls are noted, and answered from outside."""

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
    """Change the argument as the function did; only lists, dicts and sets can be."""
    if isinstance(argument, list):
        argument[:] = now
    elif isinstance(argument, dict | set):
        argument.clear()
        argument.update(now)


def raised(name: str, text: str) -> Exception:
    """The exception that the function raised, if Python itself has such a one."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        except TypeError:
            pass
    return RuntimeError(text)


if __name__ == "__main__":
    main()
