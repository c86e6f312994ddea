import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ludic_gym.errors import DataError
from ludic_gym.graders.maths import grade_maths
from ludic_gym.graders.worker import Worker


def right(answer, truth):
    return grade_maths(f"So it is \\boxed{{{answer}}}.", truth).correct


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        ("18", "18.00"),
        (r"\dfrac12", r"\frac{1}{2}"),
        (r"\frac12", "0.5"),
        (r"\text{Evelyn}", "Evelyn"),
        (r"\left( 1, 2 \right)", "(1,2)"),
        (r"90^\circ", "90"),
        ("70{,}000", "70,000"),
    ],
)
def test_what_only_looks_different_is_decided_without_math_verify(answer, truth):
    grade = grade_maths(f"\\boxed{{{answer}}}", truth)
    assert (grade.correct, grade.rule) == (True, "boxed, exact")


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        (r"2\sqrt{3}", r"\sqrt{12}"),
        ("x^2+2x+1", "(x+1)^2"),
        (r"\{1,2\}", r"\{2,1\}"),
        ("9i+6", "6+9i"),
        ("y=x+1", "y=1+x"),
    ],
)
def test_what_is_worth_the_same_is_right(answer, truth):
    pytest.importorskip("math_verify")
    assert right(answer, truth)


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        ("1/2004!", "1/2006!"),
        ("2^{-99}", "2^{-98}"),
        (r"10\%", "0.1"),
        ("0.333333", "1/3"),
        ("3x-y+13=0", "3x+4y+14=0"),
        (r"\sqrt{2}", r"\sqrt{3}"),
        ("3 or 4", "4"),
        (r"x+1=\sqrt{2}", r"\sqrt{2}"),
    ],
)
def test_what_is_not_is_wrong(answer, truth):
    pytest.importorskip("math_verify")
    assert not right(answer, truth)


@pytest.mark.parametrize(
    "text",
    [
        "",
        r"\boxed{10} or \boxed{11}",
        r"<answer>10} \boxed{11</answer>",
        "<think>\\boxed{11}",
        r"\boxed{}",
        "\\boxed{" * 10_000,
        "<answer>" * 10_000,
        "1" * 100_000,
        "\ud800",
    ],
)
def test_what_is_no_single_answer_is_wrong(text):
    assert not grade_maths(text, "11").correct


@pytest.mark.parametrize(
    "answer", ["9^{9^{9^{9}}}", "1000000!", "x" * 500, "3^{9999999}", r"\sqrt{2}+" + "9" * 40]
)
def test_what_never_ends_is_refused_at_once(answer):
    start = time.monotonic()
    assert grade_maths(f"\\boxed{{{answer}}}", r"\pi").rule == "boxed, refused"
    assert time.monotonic() - start < 1


def test_a_question_past_the_deadline_is_wrong_and_the_next_one_is_answered():
    pytest.importorskip("math_verify")
    worker = Worker(deadline_s=2.0)
    try:
        assert worker.ask("2^{2^{2^{2^{2^{2}}}}}-1000000!", r"\pi") == (False, "timeout")
        assert worker.ask(r"2\sqrt{3}", r"\sqrt{12}") == (True, "math-verify")
    finally:
        worker.close()


def test_threads_may_ask_at_once():
    pytest.importorskip("math_verify")
    worker, found = Worker(), []
    asked = [(f"{n}x+{n}", f"{n}(x+1)") for n in range(2, 8)]
    threads = [threading.Thread(target=lambda p=p: found.append(worker.ask(*p))) for p in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    worker.close()
    assert found == [(True, "math-verify")] * 6


def test_a_blank_truth_is_refused():
    with pytest.raises(DataError, match="must not be blank"):
        grade_maths("1", " ")


def test_the_500_answers_of_math_500_grade_themselves(project):
    folder = Path(os.environ.get("LUDIC_DATA_DIR", project.parent / "shared" / "data"))
    path = folder / "math500" / "test.jsonl"
    if not path.exists():
        pytest.skip(f"needs the original data in {path}; set LUDIC_DATA_DIR")
    truths = [json.loads(line)["answer"] for line in path.read_text().splitlines()]
    assert [truth for truth in truths if not right(truth, truth)] == []
    assert len(truths) == 500


def test_elsewhere_graders_are_imported_and_maths_says_what_it_needs():
    program = (
        "import os, ludic_gym.types; os.name = 'nt'; del os.register_at_fork\n"
        "from ludic_gym import grade_maths, grade_number\n"
        "print(grade_maths('1', '1.0').correct, grade_number('2', '2').correct)\n"
        "try: grade_maths('x+1', '1+x')\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("True True\nmath-verify is run in a process that needs Linux")
