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

    prelude, code: programs that are run one after the other in one module. name: of the function.
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
    if caught.error:
        return "error", text_of(caught.error)
    function = space.get(name)
    return ("ready", function) if callable(function) else ("missing", f"no function {name}")


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
