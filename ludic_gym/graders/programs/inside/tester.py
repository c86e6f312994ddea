"""Runner of test programs, whose `candidate` sends calls out and receives their results.

The tests are the data set's own and trusted. The solution is in another sandbox, because in one
process it could change what the tests compare with.
"""

import builtins
from typing import Any

from ludic_gym.graders.programs.inside.channel import Caught, Channel, text_of
from ludic_gym.graders.programs.inside.plain import NotPlain, decoded, encoded


class Broken(BaseException):
    """The test cannot be run. No test can catch this by `except Exception`."""


def main() -> None:
    """Run the tests of the first request, one after the other, and report each."""
    channel = Channel()
    request = channel.receive()
    space: dict[str, Any] = {"__name__": "tests"}
    with Caught() as caught:
        exec(compile(request["prelude"], "prelude.py", "exec", dont_inherit=True), space)
        tests = [compile(t, "tests.py", "exec", dont_inherit=True) for t in request["tests"]]
    if caught.error:
        channel.send(["broken", text_of(caught.error)])
        return
    calls: list[str] = []
    space["candidate"] = space[request["name"]] = stand_in(channel, calls, request["in_place"])
    for test in tests:
        channel.send(outcome(test, space, calls))
        if channel.receive() != "on":
            return
    channel.send(["done"])


def outcome(test: Any, space: dict[str, Any], calls: list[str]) -> list[str]:  # noqa: ANN401
    """["passed"], ["failed", why], or ["broken", why] for a fault of the test itself.

    test: compiled. space: the namespace of all tests. calls: cleared, then filled by `candidate`.
    """
    calls.clear()
    with Caught() as caught:
        exec(test, space)
        return ["passed"]
    # An error before the first call is the test's own, such as a missing module.
    failed = calls or isinstance(caught.error, AssertionError)
    return ["failed" if failed else "broken", text_of(caught.error)]


def stand_in(channel: Channel, calls: list[str], in_place: bool) -> Any:  # noqa: ANN401
    """A function that sends its calls out and returns the results from outside.

    channel: to the grader. calls: gets an entry per call. in_place: as in AssertTests.
    It raises the solution's exception, or RuntimeError for one that is not Python's own.
    """

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
        # The solution got copies, so its changes are repeated here where the tests look for them.
        for argument, tree in zip(positional, content[1] if in_place else (), strict=False):
            replace(argument, decoded(tree))
        return decoded(content[0])

    return candidate


def replace(argument: Any, now: Any) -> None:  # noqa: ANN401 (any plain value)
    """Apply the function's change to a list, dict or set, which keeps its identity.

    argument: the test's object. now: its content after the call.
    """
    if isinstance(argument, list):
        argument[:] = now
    elif isinstance(argument, dict | set):
        argument.clear()
        argument.update(now)


def raised(name: str, text: str) -> Exception:
    """The exception that the function raised, if it is one of Python's own.

    name: of its type. text: its message. A RuntimeError stands for all other types.

    >>> raised("ValueError", "no"), raised("MyError", "no")
    (ValueError('no'), RuntimeError('no'))
    """
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        # Such as UnicodeDecodeError, which cannot be made from one text.
        except TypeError:
            pass
    return RuntimeError(text)


if __name__ == "__main__":
    main()
