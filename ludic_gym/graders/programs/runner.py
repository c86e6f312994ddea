"""Runners of programs inside the sandboxes. Only this text and that of `plain` go there.

They import the standard library only, and no expected result ever enters a sandbox. The last
argument of the process is the name of a runner, a key of `RUNNERS`. It exchanges lines of JSON with
the grader, apart from the program's output: the program's stdout goes to stderr, and its stdin is
empty.
"""

import json
import os
import signal
import sys
from contextlib import AbstractContextManager, suppress
from types import CodeType, ModuleType
from typing import Any, NoReturn

from ludic_gym.graders.programs.plain import NotPlain, decoded, encoded

# Output of a case; more than this is not read, since it cannot be right.
MOST_BYTES = 2**22
MOST_ROWS = 5000
NO_PROGRAM = (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError)


class Channel:
    """The sandbox's own pipes, moved away from stdin and stdout.

    A program can still find and use them, since it shares the process. This prevents accidents, not
    attacks: the grader treats every reply as untrusted.
    """

    def __init__(self) -> None:
        """Move the pipes away, and tell the grader that the runner has started."""
        # Open as long as the process. A fork that has closed the pipes would warn of it at its end
        # if these objects owned them (from Python 3.13 on).
        self._requests = open(os.dup(0), "rb", closefd=False)  # noqa: SIM115
        self._replies = open(os.dup(1), "wb", closefd=False)  # noqa: SIM115
        # A program that reads or prints must not take requests, or write replies, by accident.
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        self.send(["started"])

    def receive(self) -> Any:  # noqa: ANN401 (JSON)
        """The next request; end the process if there is none any more."""
        line = self._requests.readline()
        if not line:
            flush()
            # `sys.exit` would run the program's `atexit` functions, which may print or hang.
            os._exit(0)
        return json.loads(line)

    def send(self, reply: object) -> None:
        """Write a reply, after the output so far."""
        flush()
        self._replies.write(json.dumps(reply).encode() + b"\n")
        self._replies.flush()


def prepare() -> None:
    """Give programs what judges of contests give: integers of any length, `exit` and `quit`."""
    import builtins
    from _sitebuiltins import Quitter

    # What `site` adds, which is not imported here.
    for name in ("exit", "quit"):
        setattr(builtins, name, Quitter(name, "the end of the file"))
    # Added to stop servers that convert what strangers send; here, CPU time is limited.
    sys.set_int_max_str_digits(0)


def flush() -> None:
    """Flush the output, unless the program has broken sys.stdout or sys.stderr."""
    with Caught():
        sys.stdout.flush()
        sys.stderr.flush()


class Caught(AbstractContextManager["Caught"]):
    """A block that runs untrusted code: holds what it raises, an exit or an interrupt too.

    error: the exception, None if the block ended without one.
    Nothing that a program raises may end its runner, which reports it.
    """

    error: BaseException | None = None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.error = error
        return True


def text_of(error: BaseException | None) -> str:
    """The error in a line, even if its class breaks `str`."""
    return f"{type(error).__name__}: {message_of(error)}"


def message_of(error: BaseException | None) -> str:
    """The error's message in 500 characters, even if its class breaks `str`."""
    with Caught():
        return str(error)[:500]
    return "an error without a message"


def run_solution(channel: Channel) -> None:
    """Load the program of the first request, then call its function once per further request."""
    opening = channel.receive()
    # Where only the truth of a result matters, the result may be an object of any kind.
    convert = bool if opening.pop("truth") else encoded
    status, content = loaded(**opening)
    channel.send([status, content if status != "ready" else ""])
    while status == "ready":
        channel.send(call_reply(content, convert, *channel.receive()))


def loaded(prelude: str, code: str, name: str) -> tuple[str, Any]:
    """The state "ready" and the function, or "syntax", "error" or "missing" and a message.

    prelude, code: programs that are run one after the other in one module.
    name: of the function, or "Class.method"; see `CallTests`.
    """
    try:
        compiled = compile(code, "solution.py", "exec", dont_inherit=True)
    except NO_PROGRAM as error:
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
        function = function_named(space, name)
    if caught.error:
        return "error", text_of(caught.error)
    return ("ready", function) if callable(function) else ("missing", f"no function {name}")


def function_named(space: dict[str, Any], name: str) -> Any:  # noqa: ANN401 (the program's)
    """The function of that name; of "Class.method", one that calls the method of a new object."""
    owner, _, method = name.rpartition(".")
    kind = space.get(owner)
    if not isinstance(kind, type):
        return space.get(method)
    if not hasattr(kind, method):
        return None
    # A new object per call: state of an earlier test must not help or harm a later one.
    return lambda *args, **kwargs: getattr(kind(), method)(*args, **kwargs)


def call_reply(function: Any, convert: Any, args: Any, kwargs: Any) -> list[Any]:  # noqa: ANN401
    """["value", result, the arguments after the call], ["raised", type, text], ["unfit", text].

    function: from `loaded`. convert: from the result to JSON. args, kwargs: trees of a list and a
    dict. "unfit" is a result that is not plain data.
    """
    with Caught() as caught:
        arguments = decoded(args)
        result = convert(function(*arguments, **decoded(kwargs)))
        # Only of types that a function can change.
        after = [encoded(a) if isinstance(a, list | dict | set) else None for a in arguments]
        return ["value", result, after]
    if isinstance(caught.error, NotPlain):
        return ["unfit", str(caught.error)]
    return ["raised", type(caught.error).__name__, message_of(caught.error)]


class BrokenTest(BaseException):
    """The test cannot be run. No test can catch this by `except Exception`."""


def run_tests(channel: Channel) -> None:
    """Run the tests of the first request, one after the other, and report each.

    The tests are the data set's own and trusted; their `candidate` sends calls out and receives
    their results. The solution is in another sandbox, because in one process it could change what
    the tests compare with.
    """
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
        calls.clear()
        with Caught() as caught:
            exec(test, space)
        if caught.error is None:
            channel.send(["passed"])
        else:
            # An error before the first call is the test's own, such as a missing module.
            failed = calls or isinstance(caught.error, AssertionError)
            channel.send(["failed" if failed else "broken", text_of(caught.error)])
        if channel.receive() != "on":
            return
    channel.send(["done"])


def stand_in(channel: Channel, calls: list[str], in_place: bool) -> Any:  # noqa: ANN401
    """A function that sends its calls out and returns the results from outside.

    channel: to the grader. calls: gets an entry per call. in_place: as in AssertTests.
    It raises the solution's exception, or RuntimeError for one that is not Python's own.
    """

    def candidate(*args: object, **kwargs: object) -> object:
        try:
            call = ["call", encoded(args), encoded(kwargs)]
        except NotPlain as error:
            channel.send(["broken", f"the test gives the function {error}"])
            raise BrokenTest from error
        calls.append("call")
        channel.send(call)
        kind, *content = channel.receive()
        if kind == "raised":
            raise exception_of(*content)
        # The solution got copies, so its changes are repeated here where the tests look for them.
        for argument, tree in zip(args, content[1] if in_place else (), strict=False):
            apply_change(argument, decoded(tree))
        return decoded(content[0])

    return candidate


def apply_change(argument: Any, now: Any) -> None:  # noqa: ANN401 (any plain value)
    """Apply the function's change to a list, dict or set, which keeps its identity.

    argument: the test's object. now: its content after the call.
    """
    if isinstance(argument, list):
        argument[:] = now
    elif isinstance(argument, dict | set):
        argument.clear()
        argument.update(now)


def exception_of(name: str, text: str) -> Exception:
    """The exception that the function raised, if it is one of Python's own.

    name: of its type. text: its message. A RuntimeError stands for all other types.

    >>> exception_of("ValueError", "no"), exception_of("MyError", "no")
    (ValueError('no'), RuntimeError('no'))
    """
    import builtins

    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        # Some cannot be made from one text, such as UnicodeDecodeError.
        with suppress(TypeError):
            return kind(text)
    return RuntimeError(text)


class TooLong(Exception):
    """A case has used up its time."""


def run_cases(channel: Channel) -> None:
    """Compile the program of the first request, then run one case per further request.

    Each runs in a new process, stdin in, stdout out. The program is compiled once and run in forks,
    because a start of Python takes longer than most cases. A fork's stdin and stdout are files, so
    that it never waits for this process.
    """
    # For the forks, which import it again; the other runners start faster without it.
    import traceback  # noqa: F401

    def too_long(number: int, frame: object) -> NoReturn:
        raise TooLong

    request = channel.receive()
    try:
        code = compile(request["code"], "solution.py", "exec", dont_inherit=True)
    except NO_PROGRAM as error:
        channel.send(["syntax", text_of(error)])
        return
    channel.send(["ready", ""])
    signal.signal(signal.SIGALRM, too_long)
    while True:
        channel.send(case_reply(code, channel.receive(), request["case_s"]))


def case_reply(code: CodeType, stdin: str, case_s: float) -> list[Any]:
    """["exited", stdout, exit code, 128 + n where signal n ended it], or ["timeout", stdout].

    code: the compiled program. stdin: its input; surrogate escapes stand for bytes that are not
    UTF-8. case_s: seconds until the program and its children are killed.
    """
    with open("stdin", "wb") as file:
        file.write(stdin.encode("utf-8", "surrogateescape"))
    child = os.fork()
    if not child:
        become(code)
    status = waited(child, case_s)
    try:
        with open("stdout", "rb") as file:
            stdout = file.read(MOST_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        stdout = ""
    if status is None:
        return ["timeout", stdout]
    # Shells and the sandbox count the same way: 128 + n for signal n.
    exit_code = os.waitstatus_to_exitcode(status)
    return ["exited", stdout, exit_code if exit_code >= 0 else 128 - exit_code]


def waited(child: int, case_s: float) -> int | None:
    """The status that the child ended with; None if it took too long. Its children are killed."""
    status = None
    try:
        signal.setitimer(signal.ITIMER_REAL, case_s)
        status = os.waitpid(child, 0)[1]
        signal.setitimer(signal.ITIMER_REAL, 0)
    except TooLong:
        pass
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    return status


def become(code: CodeType) -> NoReturn:
    """Run the program as Python would run it from a file, and end like it.

    Called in a fork, whose process group is its own, so that its children can be killed with it.
    """
    os.setpgid(0, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.dup2(os.open("stdin", os.O_RDONLY), 0)
    os.dup2(os.open("stdout", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
    # The program must not reach the runner's pipes.
    os.closerange(3, 256)
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["solution.py"]

    def show(kind: type[BaseException], error: BaseException, trace: Any) -> None:  # noqa: ANN401
        import traceback

        while trace and trace.tb_frame.f_code is not code:
            trace = trace.tb_next
        traceback.print_exception(kind, error, trace)

    # Without the runner's frames. All else is left to the interpreter: it ends with the program's
    # exit code, after its other threads and with its buffers written.
    sys.excepthook = show
    exec(code, vars(module))
    sys.exit()


def run_query(channel: Channel) -> None:
    """Make the database of the first request in memory, then run the query of the second one.

    The first request is the SQL that makes the database, or {"database": a SQLite file in base64}.
    The reply is ["rows", list of tuples], ["syntax", why], ["raised", why], or ["unfit", why] for
    more than `MOST_ROWS` rows and values that are not plain data; ["broken", why] for the database.
    """
    import base64
    import sqlite3

    # ATTACH and writes are refused, so that a query can neither open files nor change the rows.
    allowed = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
    allowed |= {sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
    schema = channel.receive()
    channel.send(["ready", ""])
    query = channel.receive()
    with sqlite3.connect(":memory:") as database:
        try:
            if isinstance(schema, dict):
                database.deserialize(base64.b64decode(schema["database"]))
                database.execute("SELECT count(*) FROM sqlite_master").fetchall()
            else:
                database.executescript(schema)
        except sqlite3.Error as error:
            channel.send(["broken", text_of(error)])
            return
        database.text_factory = lambda text: text.decode("utf-8", "replace")
        # Only now: the schema creates and fills tables, which a query may not.
        database.set_authorizer(
            lambda action, *what: sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY
        )
        try:
            # One more than the most, by which a result that is too long is recognized without
            # reading all of it.
            rows = database.execute(query).fetchmany(MOST_ROWS + 1)
            fits = len(rows) <= MOST_ROWS
            reply = ["rows", encoded(rows)] if fits else ["unfit", f"more than {MOST_ROWS} rows"]
        except NotPlain as error:
            reply = ["unfit", str(error)]
        # ValueError: a query with a null character or a lone surrogate.
        except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError) as error:
            is_syntax = isinstance(error, sqlite3.OperationalError) and "syntax error" in str(error)
            reply = ["syntax" if is_syntax else "raised", text_of(error)]
        channel.send(reply)


RUNNERS = {"solution": run_solution, "tester": run_tests, "cases": run_cases, "query": run_query}

if __name__ == "__main__":
    prepare()
    RUNNERS[sys.argv.pop()](Channel())
