import asyncio
import multiprocessing
import sys
from contextlib import contextmanager

import pytest

from ludic_gym.errors import DataError, NoSandbox, SandboxError
from ludic_gym.graders.programs.grader import Grader, Memo, key_of
from ludic_gym.graders.programs.types import AssertTests, CallTests, StdinTests
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.sandbox.types import Limits

QUICK = Limits(cpu_s=3.0, wall_s=30.0)
# For programs without an end.
ONE_SECOND = Limits(cpu_s=1.0, wall_s=30.0)
SQUARES = CallTests(name="f", calls=((1,), (2,), (3,)), expected=(1, 4, 9))
# Its output comes from a thread that it does not wait for.
THREADED = """import threading
threading.Thread(target=lambda: print(sum(map(int, input().split())))).start()"""
SUMS = StdinTests(cases=(("1 2\n", "3\n"), ("4 5\n", "9\n")), case_s=20.0)
CHECK = AssertTests(
    name="add",
    tests=("def check(f):\n    assert f(1, 2) == 3\ncheck(candidate)", "assert add(b=1, a=5) == 6"),
)


@pytest.mark.parametrize(
    ("code", "outcome", "passed", "failed", "message"),
    [
        ("def f(x): return x * x", "passed", 3, -1, ""),
        ("def f(x): return x + x", "wrong", 1, 0, "gave 2"),
        ("def f(x): return 1 if x < 3 else 9", "wrong", 2, 1, "gave 1"),
        ("def f(x): return 1 // (x - 2) + 2", "raised", 0, 0, "gave 1"),
        ("def f(x)", "syntax", 0, -1, "SyntaxError: expected ':' (solution.py, line 1)"),
        ("\0", "syntax", 0, -1, ""),
        ("\ud800", "syntax", 0, -1, "UnicodeEncodeError: "),
        ("x = 1", "missing", 0, -1, "no function f"),
        ("f = 3", "missing", 0, -1, "no function f"),
        ("1 / 0", "raised", 0, -1, "ZeroDivisionError: division by zero"),
        ("def f(x): return (n for n in [x])", "wrong", 0, 0, "gave an object of type generator"),
        ("def f(x): return [0] * 10**5", "wrong", 0, 0, "gave a value of more than 20000 parts"),
        ("def f(x): return bytearray(10**10)", "raised", 0, 0, "MemoryError: "),
        (" \n", "empty", 0, -1, "there is no program"),
    ],
)
def test_a_function_is_judged_by_what_it_gives(grader, code, outcome, passed, failed, message):
    verdict = grader.grade(code, SQUARES, limits=QUICK, stop=False)
    if outcome == "raised" and "//" in code:
        # 1 // -1 + 2 is 1; then a division by zero; then 1 // 1 + 2 is 3.
        assert (verdict.outcome, verdict.passed, verdict.failed) == ("raised", 1, 1)
        return
    found = (verdict.outcome, verdict.passed, verdict.failed)
    assert found == (outcome, passed, failed)
    assert verdict.message.startswith(message)


@pytest.mark.parametrize(
    ("code", "outcome", "message"),
    [
        ("print(sum(map(int, input().split())))", "passed", ""),
        ("import sys\nprint(sum(map(int, sys.stdin.read().split())), end='')", "passed", ""),
        (THREADED, "passed", ""),
        ("print(3)", "wrong", "wrote '3\\n'"),
        ("print(3); raise SystemExit(2)", "raised", "exit code 2"),
        ("print(3); import sys; sys.exit('bad')", "raised", "exit code 1"),
        ("print(3); 1 / 0", "raised", "exit code 1"),
        ("print(3); import os; os.abort()", "raised", "exit code 134"),
        ("print(", "syntax", "SyntaxError: '(' was never closed"),
    ],
)
def test_a_program_is_judged_by_what_it_writes(grader, code, outcome, message):
    verdict = grader.grade(code, SUMS, limits=QUICK)
    assert (verdict.outcome, verdict.total) == (outcome, 2)
    assert verdict.message.startswith(message)


def test_a_traceback_has_only_the_frames_of_the_program(grader):
    verdict = grader.grade("def f():\n    1 / 0\nf()", SUMS, limits=QUICK)
    files = [line.split('"')[1] for line in verdict.printed.splitlines() if "File" in line]
    assert files == ["solution.py"] * 2
    assert verdict.printed.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("end", ["exit()", "exit(0)", "quit()", "import sys; sys.exit()"])
def test_a_program_may_end_itself_in_any_way(grader, end):
    code = f"print(sum(map(int, input().split())))\n{end}\nprint('more')"
    assert grader.grade(code, SUMS, limits=QUICK).outcome == "passed"
    assert grader.grade(code.replace("sum", "max"), SUMS, limits=QUICK).outcome == "wrong"
    function = f"def f(x):\n    if x > 3:\n        {end}\n    return x * x"
    assert grader.grade(function, SQUARES, limits=QUICK).outcome == "passed"


def test_integers_may_have_any_length(grader):
    # 7^6000 has 5,071 digits; by default Python writes and reads 4,300.
    big = 7**6000
    with whole_integers():
        written = str(big)
    given, wanted = ("6000\n", f"{written}\n"), (f"{written}\n", f"{written}\n")
    cases = StdinTests(cases=(given,))
    assert grader.grade("print(7 ** int(input()))", cases, limits=QUICK).outcome == "passed"
    cases = StdinTests(cases=(wanted,))
    assert grader.grade("print(int(input()) + 0)", cases, limits=QUICK).outcome == "passed"
    doubled = CallTests(name="f", calls=((big,), (2 * big,)), expected=(2 * big, 4 * big + 1))
    verdict = grader.grade("def f(x): return 2 * x", doubled, limits=QUICK, stop=False)
    assert (verdict.outcome, verdict.passed) == ("wrong", 1)


@contextmanager
def whole_integers():
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(limit)


def test_every_case_begins_anew(grader):
    code = "import os\nprint(len(open('seen', 'a+').read()) if os.path.exists('x') else 0)\n"
    code += "import builtins\nprint(getattr(builtins, 'seen', 0))\nbuiltins.seen = 1"
    tests = StdinTests(cases=(("", "0 0"), ("", "0 0")), case_s=20.0)
    assert grader.grade(code, tests, limits=QUICK).outcome == "passed"


def test_a_case_that_takes_too_long_fails_alone(grader):
    code = "while input() == 'wait': pass\nprint('went on')"
    tests = StdinTests(cases=(("wait\n" * 10**5 + "go", "x"), ("go", "went on")), case_s=60.0)
    slow = "n = input()\nwhile n == 'wait': pass\nprint('went on')"
    assert grader.grade(code, tests, limits=QUICK, stop=False).passed == 1
    tests = StdinTests(cases=(("wait", ""), ("go", "went on")), case_s=1.0)
    verdict = grader.grade(slow, tests, limits=QUICK, stop=False)
    assert (verdict.outcome, verdict.passed) == ("timeout", 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "outcome", "passed"),
    [
        ("def add(a, b): return a + b", "passed", 2),
        ("def add(a, b): return a * 3 * b // b", "wrong", 1),
        ("def add(a, b): return a - b", "wrong", 0),
        ("def add(a, c): return a + c", "wrong", 1),
        ("def add(a, b): raise AssertionError", "wrong", 0),
        ("def add(a, b): import os; os._exit(0)", "crashed", 0),
        ("def add(a, b):\n    while True: pass", "timeout", 0),
    ],
)
def test_assertions_run_beside_the_solution(grader, code, outcome, passed):
    limits = ONE_SECOND if "while" in code else QUICK
    verdict = grader.grade(code, CHECK, limits=limits, stop=False)
    assert (verdict.outcome, verdict.passed, verdict.total) == (outcome, passed, 2)


def test_assertions_see_changed_arguments_only_if_they_ask_to(grader):
    tests = ("xs = [2, 1]\nf(xs)\nassert xs == [1, 2]",)
    code = "def f(xs): xs.sort()"
    seen = AssertTests(name="f", tests=tests, in_place=True)
    assert grader.grade(code, seen, limits=QUICK).outcome == "passed"
    unseen = AssertTests(name="f", tests=tests)
    assert grader.grade(code, unseen, limits=QUICK).outcome == "wrong"


FORGED = """
import os
deep = b"[" * {depth} + b"]" * {depth}
for fd in range(3, 64):
    try: os.write(fd, {line})
    except OSError: pass
def f(x): return x * x
def add(a, b): return a + b
"""


@pytest.mark.parametrize("depth", [50, 900, 980, 990, 5000])
@pytest.mark.parametrize(
    "line",
    [
        "b'[\"syntax\", ' + deep + b']\\n'",
        'b\'["ready", ""]\\n["value", \' + deep + b\', []]\\n\'',
        "b'[\"ready\", \"\"]\\n[\"raised\", ' + deep + b', ' + deep + b']\\n'",
    ],
)
def test_a_forged_reply_of_any_depth_has_a_verdict(grader, line, depth):
    code = FORGED.format(depth=depth, line=line)
    for tests in (SQUARES, CHECK):
        assert grader.grade(code, tests, limits=QUICK).outcome not in ("passed", "empty")


def test_the_prelude_is_there_for_both_sides_but_is_no_solution(grader):
    prelude = "def double(x): return 2 * x\ndef f(x): pass"
    tests = AssertTests(name="f", tests=("assert f(4) == double(4)",), prelude=prelude)
    assert grader.grade("def f(x): return double(x)", tests, limits=QUICK).outcome == "passed"
    assert grader.grade("y = 1", tests, limits=QUICK).outcome == "missing"


@pytest.mark.parametrize(
    "tests",
    [
        ("assert f(",),
        ("f(object())",),
        ("f(print)",),
        ("import no_such_module\nassert f(1)",),
        ("assert f(1) == 1", "assert maths.isclose(f(1), 1)"),
    ],
)
def test_tests_that_cannot_be_run_are_no_fault_of_the_solution(grader, tests):
    with pytest.raises(DataError, match="the tests of f cannot be run"):
        grader.grade("def f(x): return x", AssertTests(name="f", tests=tests), limits=QUICK)


def test_a_reference_says_what_is_right_for_the_calls_it_answers(grader):
    tests = CallTests(name="f", calls=((4,), ("a",), (0,)), reference="def f(x): return 8 // x")
    assert grader.grade("def f(x): return 2", tests, limits=QUICK).total == 1
    assert grader.grade("def f(x): return 2", tests, limits=QUICK).outcome == "passed"
    assert grader.grade("def f(x): return 8", tests, limits=QUICK).outcome == "wrong"


@pytest.mark.parametrize("reference", ["def f(x): 1 / 0", "def f(x) 1", "import os; os._exit(0)"])
def test_a_reference_that_says_nothing_is_an_error_of_the_data(grader, reference):
    tests = CallTests(name="f", calls=((4,),), reference=reference)
    with pytest.raises(DataError, match="the reference of f"):
        grader.grade("def f(x): return 2", tests, limits=QUICK)


def test_it_stops_at_the_first_wrong_answer_if_asked_to(grader):
    code = "def f(x):\n    print(x)\n    return 0 if x == 1 else x * x"
    assert grader.grade(code, SQUARES, limits=QUICK, stop=True).printed == "1\n"
    verdict = grader.grade(code, SQUARES, limits=QUICK, stop=False)
    assert (verdict.printed, verdict.passed) == ("1\n2\n3\n", 2)


class CountingSandbox:
    """Counts the programs that are started."""

    def __init__(self, sandbox):
        self.name, self.guarantees, self.starts = sandbox.name, sandbox.guarantees, 0
        self._sandbox = sandbox

    async def start(self, program, **options):
        self.starts += 1
        return await self._sandbox.start(program, **options)


def test_a_verdict_is_found_once_for_all_who_ask(sandbox):
    counting = CountingSandbox(sandbox)
    grader = Grader(counting)

    async def ask(count):
        code = "def f(x): return x"
        asked = [grader.grade_async(code, SQUARES, limits=QUICK) for _ in range(count)]
        return await asyncio.gather(*asked)

    assert len({v.outcome for v in asyncio.run(ask(8))}) == 1
    asyncio.run(ask(1))
    assert counting.starts == 1


@pytest.mark.long
def test_what_time_ran_out_for_is_tried_again(sandbox):
    counting = CountingSandbox(sandbox)
    grader = Grader(counting)
    for _ in range(2):
        assert grader.grade("while True: pass", SQUARES, limits=ONE_SECOND).outcome == "timeout"
    assert counting.starts == 2


@pytest.mark.parametrize(
    "other",
    [
        ("box", "y", SQUARES, QUICK, True),
        ("other", "x", SQUARES, QUICK, True),
        ("box", "x", CallTests(name="f", calls=((1,),), expected=(1,), atol=0.5), QUICK, True),
        ("box", "x", SUMS, QUICK, True),
        ("box", "x", SQUARES, Limits(cpu_s=4.0), True),
        ("box", "x", SQUARES, QUICK, False),
    ],
)
def test_a_verdict_depends_on_everything_it_is_found_with(other):
    assert key_of(*other) != key_of("box", "x", SQUARES, QUICK, True)
    assert key_of("box", "x", SQUARES, QUICK, True) == key_of("box", "x", SQUARES, QUICK, True)


async def test_only_the_newest_results_are_remembered():
    memo = Memo(2)

    async def found(value):
        return value

    for value in "abac":
        await memo.get(value, lambda value=value: found(value))
    assert len(memo) == 2
    # "a" was used after "b".
    assert await memo.get("a", lambda: found("new")) == "a"
    assert await memo.get("b", lambda: found("new")) == "new"


@pytest.mark.long
def test_a_sandbox_that_breaks_is_tried_again_and_costs_nothing(crashing):
    sandbox = crashing(0.3)
    grader = Grader(sandbox)
    for i in range(20):
        good = f"def f(x): return x * x + {i} - {i}"
        assert grader.grade(good, SQUARES, limits=QUICK).outcome == "passed"
    assert sandbox.crashes > 0


def test_a_sandbox_that_always_breaks_is_reported_and_not_remembered(crashing):
    sandbox = crashing(1.0)
    grader = Grader(sandbox)
    for starts in (5, 10):
        with pytest.raises(SandboxError, match="injected"):
            grader.grade("def f(x): return x", SQUARES, limits=QUICK)
        assert sandbox.starts == starts


def test_a_sandbox_that_cannot_work_is_not_tried_again():
    class Missing:
        name, starts = "missing", 0

        async def start(self, program, **options):
            self.starts += 1
            raise NoSandbox("install one")

    sandbox = Missing()
    with pytest.raises(NoSandbox, match="install one"):
        Grader(sandbox).grade("def f(x): return x", SQUARES)
    assert sandbox.starts == 1


@pytest.mark.long
def test_pairs_of_sandboxes_do_not_wait_for_each_other(grader):
    async def many():
        codes = [f"def add(a, b): return a + b - {i} + {i} * 1" for i in range(10)]
        return await asyncio.gather(*(grader.grade_async(c, CHECK, limits=QUICK) for c in codes))

    assert {v.outcome for v in run_blocking(many())} == {"passed"}


def _grade_in_fork(grader, pipe):
    pipe.send(grader.grade("def f(x): return x * x + 0", SQUARES, limits=QUICK).outcome)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_grades_with_a_loop_of_its_own(sandbox, grader):
    from ludic_gym.graders.programs.grader import grader_for

    grader.grade("def f(x): return x", SQUARES, limits=QUICK)
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=lambda: _grade_in_fork(grader_for(sandbox), theirs)
    )
    child.start()
    assert ours.poll(60)
    assert ours.recv() == "passed"
    child.join()
