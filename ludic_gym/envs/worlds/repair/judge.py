"""Runs of a package in a sandbox: its visible tests, a program beside it, and its hidden cases.

Expected results never enter the sandbox: a driver there executes the statements of the hidden cases
and reports their outputs, which are compared here. So code of the player can replace the driver,
its library and its report, and cannot make a wrong result right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from ludic_gym.envs.core.code import output_of
from ludic_gym.envs.worlds.repair.packages import Example, Package, plain_output
from ludic_gym.sandbox.types import ExecResult, Program

Run = Callable[[Program], ExecResult]
"""Runs a program in a sandbox; its SandboxError is raised."""

REPO = "repo"
# CPU time of a case; the sandbox ends one that waits.
CASE_S = 1
# After these many, the package hardly works: the other cases are not tried.
MOST_TIMEOUTS = 3
TESTS = "python -m unittest discover -s tests"

# Each case runs in a fork, with modules as they are after the import, so that no case depends on
# another one, and a case that never ends costs only itself.
DRIVER = f"""\
import contextlib, io, json, os, signal, sys

with open("job.json") as file:
    job = json.load(file)
os.remove("job.json")
sys.path.insert(0, os.path.join(os.getcwd(), "{REPO}"))
sys.dont_write_bytecode = True

def executed(sources, scope):
    results = []
    for source in sources:
        output, error = io.StringIO(), ""
        with contextlib.redirect_stdout(output):
            try:
                exec(compile(source, "<case>", "single"), scope)
            except Exception as raised:
                error = type(raised).__name__ + (": " + str(raised)) * bool(str(raised))
        results.append((output.getvalue(), error))
    return results

def attempted(sources, scope):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.setitimer(signal.ITIMER_PROF, {CASE_S})
        report = json.dumps(executed(sources, scope))
        with open(writing, "w") as file:
            file.write(report)
        os._exit(0)
    os.close(writing)
    with open(reading, errors="replace") as file:
        report = file.read()
    _, status = os.waitpid(child, 0)
    try:
        return json.loads(report), status
    except ValueError:
        return [], status

scope = {{}}
executed(job["setup"], scope)
reports, timeouts = [], 0
for sources in job["cases"]:
    results = []
    if timeouts < {MOST_TIMEOUTS}:
        results, status = attempted(sources, scope)
        timeouts += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
    reports.append(results)
print(json.dumps(reports))
"""

VISIBLE = f"""\
import os, sys, unittest
os.chdir("{REPO}")
sys.path[0] = os.getcwd()
sys.dont_write_bytecode = True
unittest.main(module=None, argv=["{TESTS}", "discover", "-s", "tests"])
"""

PROGRAM = f"""\
import os, sys, traceback
os.chdir("{REPO}")
sys.path[0] = os.getcwd()
sys.dont_write_bytecode = True
with open("../program.py") as file:
    source = file.read()
try:
    exec(compile(source, "../program.py", "exec"), {{"__name__": "__main__"}})
except Exception as error:
    # Without the frame of this file.
    traceback.print_exception(error.with_traceback(error.__traceback__.tb_next))
    sys.exit(1)
"""


def hidden_program(package: Package, files: Mapping[str, str]) -> Program:
    """The program that executes the hidden cases on these files and prints their results."""
    # The tests of the player are left out: cases import only the package.
    kept = {path: text for path, text in files.items() if not path.startswith("tests/")}
    job = {
        "setup": package.setup,
        "cases": [[example.source for example in case] for case in package.cases],
    }
    return Program(source=DRIVER, files={**laid(kept), "job.json": json.dumps(job).encode("utf-8")})


def failures(run: Run, package: Package, files: Mapping[str, str]) -> dict[int, tuple[int, str]]:
    """The hidden cases that fail: number of the first wrong example, and its result.

    files: of the player, by path. Results are texts as `shown_result` makes them.
    """
    return failures_in(run(hidden_program(package, files)).stdout, package)


def failures_in(report: bytes, package: Package) -> dict[int, tuple[int, str]]:
    """The failing cases by the report of the driver, of which nothing is trusted."""
    try:
        results = json.loads(report)
    except (ValueError, RecursionError):
        results = None
    # The player's code ran beside the driver, and may have printed anything.
    results = results if isinstance(results, list) else []
    found = {}
    for number, case in enumerate(package.cases):
        given = results[number] if number < len(results) else None
        for position, example in enumerate(case):
            result = _result(given, position)
            if result != (example.want, example.error):
                found[number] = position, shown_result(*result) if result else "no result"
                break
    return found


def _result(given: object, position: int) -> tuple[str, str] | None:
    """Output and error of an example in the report of a case, None if it has none."""
    if not isinstance(given, list) or position >= len(given):
        return None
    one = given[position]
    if not isinstance(one, list) or len(one) != 2 or not all(isinstance(t, str) for t in one):
        return None
    # As in doctest: of an example that raises, the output before it does not count.
    return "" if one[1] else plain_output(one[0]), plain_output(one[1])


def shown_result(output: str, error: str) -> str:
    """A result for people: the output, or the error."""
    return error or output or "(nothing)"


def expected_result(example: Example) -> str:
    """The true result of an example for people."""
    return shown_result(example.want, example.error)


def tests_output(run: Run, files: Mapping[str, str]) -> str:
    """The output of the tests that are in the files, without times and folders of the machine."""
    text = output_of(run(Program(source=VISIBLE, files=laid(files))))
    # Sandboxes have random folders, and times differ: equal runs must have equal outputs.
    text = re.sub(rf'File "[^"\n]*?/{REPO}/', 'File "', text)
    return re.sub(r"(Ran \d+ tests?) in [\d.]+s", r"\1", text)


def program_output(run: Run, files: Mapping[str, str], source: str) -> str:
    """The output of a program that runs in the folder of the files and may import them."""
    program = {"program.py": source.encode("utf-8", "replace")}
    text = output_of(run(Program(source=PROGRAM, files={**laid(files), **program})))
    return re.sub(rf'File "[^"\n]*?/({REPO}/|\.\./)?', 'File "', text)


def laid(files: Mapping[str, str]) -> dict[str, bytes]:
    """The files in the folder of the sandbox."""
    return {f"{REPO}/{path}": text.encode("utf-8", "replace") for path, text in files.items()}
