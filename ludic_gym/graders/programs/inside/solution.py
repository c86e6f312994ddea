"""Runner of a program's function: arguments in, results out, as plain data."""

import sys
from types import ModuleType
from typing import Any

from ludic_gym.graders.programs.inside.channel import Caught, Channel, message_of, text_of
from ludic_gym.graders.programs.inside.plain import NotPlain, decoded, encoded


def main() -> None:
    """Load the program of the first request, then call its function once per further request."""
    channel = Channel()
    opening = channel.receive()
    # Where only the truth of a result matters, the result may be an object of any kind.
    convert = bool if opening.pop("truth") else encoded
    status, found = loaded(**opening)
    channel.send([status, found if status != "ready" else ""])
    while status == "ready":
        channel.send(answer(found, convert, *channel.receive()))


def loaded(prelude: str, code: str, name: str) -> tuple[str, Any]:
    """The state "ready" and the function, or "syntax", "error" or "missing" and a message.

    prelude, code: programs that are run one after the other in one module.
    name: of the function, or "Class.method"; see `CallTests`.
    """
    try:
        compiled = compile(code, "solution.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
        return "syntax", text_of(error)
    # Data classes look their module up in sys.modules.
    module = ModuleType("solution")
    sys.modules["solution"] = module
    space = vars(module)
    with Caught() as caught:
        exec(compile(prelude, "prelude.py", "exec", dont_inherit=True), space)
        # A stub of the function in the prelude is no solution.
        space.pop(name, None)
        exec(compiled, space)
        # Inside the block: a class may run code of its own when it is looked into.
        function = named(space, name)
    if caught.error:
        return "error", text_of(caught.error)
    return ("ready", function) if callable(function) else ("missing", f"no function {name}")


def named(space: dict[str, Any], name: str) -> Any:  # noqa: ANN401 (what the program put there)
    """The function of that name; of "Class.method", one that calls the method of a new object."""
    owner, _, plain = name.rpartition(".")
    made = space.get(owner)
    if not isinstance(made, type):
        return space.get(plain)
    # A new object per call: state of an earlier test must not help or harm a later one.
    known = hasattr(made, plain)
    return (lambda *args, **kwargs: getattr(made(), plain)(*args, **kwargs)) if known else None


def answer(function: Any, convert: Any, positional: Any, named: Any) -> list[Any]:  # noqa: ANN401
    """["value", result, the arguments after the call], ["raised", type, text], ["unfit", text].

    function: from `loaded`. convert: from the result to JSON. positional, named: trees of a list
    and a dict. "unfit" is a result that is not plain data.
    """
    with Caught() as caught:
        arguments = decoded(positional)
        result = function(*arguments, **decoded(named))
        return ["value", convert(result), [changed(argument) for argument in arguments]]
    if isinstance(caught.error, NotPlain):
        return ["unfit", str(caught.error)]
    return ["raised", type(caught.error).__name__, message_of(caught.error)]


def changed(argument: object) -> Any:  # noqa: ANN401 (a tree)
    """The argument after the call, if it is of a type that a function can change, else None."""
    return encoded(argument) if isinstance(argument, list | dict | set) else None


if __name__ == "__main__":
    main()
