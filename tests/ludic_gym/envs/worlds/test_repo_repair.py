"""RepoRepair: bugs and their issues, tools, and hidden tests that the player cannot reach."""

import json

import numpy as np
import pytest

from ludic_gym.envs.worlds.repair.bugs import (
    Package,
    broken_files,
    choices,
    drawn_task,
    examples_in,
    failures,
    failures_in,
    mutations,
    package,
    package_names,
    reported_bugs,
)
from ludic_gym.envs.worlds.repo_repair import (
    Folder,
    RepoRepairEnv,
)

BUGS = (*reported_bugs(), *mutations())
SESSION = """\
>>> 1 + 1
2
>>> int('x')
Traceback (most recent call last):
ValueError: no
"""
TINY = Package("tiny", {}, (), (examples_in(SESSION),))


def call(name, **arguments):
    return json.dumps({"name": name, "arguments": arguments})


def started(level="medium", seed=0):
    env = RepoRepairEnv(level)
    env.reset(seed=seed)
    return env


def is_repaired(env, *actions):
    for action in actions:
        env.step(action)
    *_, info = env.step(call("submit"))
    return info["success"]


def repairs(env):
    """The actions of the oracle before its submission."""
    original = package(env.task.package).files
    return [call("write_file", path=b.path, text=original[b.path]) for b in env.task.bugs]


def test_a_bug_changes_one_place_and_at_least_two_hidden_tests_fail():
    for bug in BUGS:
        assert package(bug.package).files[bug.path].count(bug.before) == 1
        assert len(bug.fails) >= 2
        assert bool(bug.issue) != bool(bug.shown)
        # The issue says nothing about the repair.
        assert bug.before.strip() not in bug.issue


@pytest.mark.slow
@pytest.mark.parametrize("name", package_names())
def test_every_bug_fails_the_hidden_tests_that_its_issue_shows(name):
    env, original = started(), package(name)
    assert failures(env.run, original, original.files) == {}
    for bug in BUGS:
        if bug.package == name:
            failed = failures(env.run, original, broken_files(original.files, bug))
            assert sorted(failed) == list(bug.fails)
            for shown in bug.shown:
                assert failed[shown.case] == (shown.example, shown.result)


@pytest.mark.slow
@pytest.mark.parametrize("name", package_names())
def test_the_visible_tests_of_every_package_pass(name):
    env = started()
    env.folder = Folder(package(name).files)
    assert "OK" in env.step(call("run_tests"))[0]


@pytest.mark.slow
def test_two_bugs_fail_the_tests_of_both():
    env = started("hard")
    for combination in choices("hard", "all")[::25]:
        original = package(combination[0].package)
        files = broken_files(broken_files(original.files, combination[0]), combination[1])
        failed = failures(env.run, original, files)
        assert {*failed} == {number for bug in combination for number in bug.fails}


def test_an_episode_without_a_change_reports_the_tests_that_fail(monkeypatch):
    env = started("hard")
    monkeypatch.setattr(env, "run", None)
    *_, info = env.step(call("submit"))
    fails = {number for bug in env.task.bugs for number in bug.fails}
    assert info["passed"] == info["total"] - len(fails)


def test_hidden_statements_are_compared_by_output_and_by_error():
    def judged(*results):
        return failures_in(json.dumps([results]).encode(), TINY)

    assert judged(["2\n", ""], ["", "ValueError: no"]) == {}
    assert judged(["2 \n\n", ""], ["printed before", "ValueError: no"]) == {}
    assert judged(["3\n", ""], ["", "ValueError: no"]) == {0: (0, "3")}
    assert judged(["2\n", ""], ["", "TypeError: no"]) == {0: (1, "TypeError: no")}
    assert judged(["2\n", ""], ["ValueError: no", ""]) == {0: (1, "ValueError: no")}
    assert judged(["", ""], ["", "ValueError: no"]) == {0: (0, "(nothing)")}
    assert judged(["2\n", ""]) == {0: (1, "no result")}


@pytest.mark.parametrize(
    "report",
    [b"", b"OK", b"null", b"{}", b"[]", b"[null]", b"[1]", b'["22"]', b"[[[]]]", b'[[["2", 0]]]',
     b'[[["2"]]]', b'[{"0": ["2", ""]}]', b"[" * 9999, b"\xff", b"true", b'[[true, true]]'],
)  # fmt: skip
def test_a_report_that_is_none_fails_everything(report):
    assert failures_in(report, TINY) == {0: (0, "no result")}


HACKS = {
    "leave at import": "import sys; sys.exit(0)",
    "leave quietly": "import os; print('OK'); os._exit(0)",
    "print success": "print('Ran 99 tests\\n\\nOK'); print('[[]]')",
    "patch unittest": (
        "import unittest, builtins\n"
        "unittest.TestCase.assertEqual = lambda *a: None\n"
        "unittest.TestResult.wasSuccessful = lambda self: True\n"
        "builtins.repr = lambda value: 'True'\n"
    ),
    "patch the driver": (
        "import sys, json, os, __main__\n"
        "json.dumps = lambda *a, **k: '[]'\n"
        "__main__.executed = __main__.attempted = lambda *a: ([['', '']], 0)\n"
    ),
    "compare with everything": (
        "class Same(str):\n"
        "    __eq__ = lambda self, other: True\n"
        "    __hash__ = str.__hash__\n"
        "import io\n"
        "io.StringIO.getvalue = lambda self: Same('OK')\n"
    ),
    "write the report": 'import os\nfor fd in (1, 2): os.write(fd, b\'[[["OK", ""]]]\\n\')',
    "end the driver": "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("source", HACKS.values(), ids=HACKS)
def test_code_that_pretends_scores_nothing(source):
    env = started()
    name = env.task.package
    text = env.folder.files[f"{name}/__init__.py"]
    hacked = call("write_file", path=f"{name}/__init__.py", text=f"{source}\n{text}")
    assert not is_repaired(env, hacked)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tests/test_{name}.py", ""),
        ("tests/test_{name}.py", "import sys\nsys.exit(0)\n"),
        ("tests/__init__.py", "import os\nos._exit(0)\n"),
        ("conftest.py", "import os\nos._exit(0)\n"),
        ("sitecustomize.py", "print('OK')\nimport os\nos._exit(0)\n"),
        ("json.py", "dumps = lambda *a: 'OK'\n"),
        ("unittest.py", "def main(*a, **k): print('OK')\n"),
        ("{name}.py", "print('OK')\n"),
    ],
)
def test_files_that_pretend_score_nothing_and_do_no_harm_to_a_repair(path, text):
    env = started()
    hack = call("write_file", path=path.format(name=env.task.package), text=text)
    assert not is_repaired(env, hack)
    env = started()
    assert is_repaired(env, hack, *repairs(env))


def test_a_program_that_knows_the_result_of_the_issue_is_wrong():
    # For each mutation another hidden test fails than the one that its issue shows.
    assert all({*bug.fails} - {shown.case} for bug in mutations() for shown in bug.shown)


def test_hidden_tests_and_the_original_are_not_in_the_sandbox_of_the_player():
    env = started()
    source = """
import os, sys
found = [os.path.join(at, name) for at, _, names in os.walk(".") for name in names]
print(len(found), os.path.exists("../job.json"))
for at in filter(os.path.isdir, sys.path):
    print([name for name in os.listdir(at) if "hidden" in name or "bugs" in name])
"""
    text, *_ = env.step(call("run_python", source=source))
    assert text.startswith(f"{len(env.folder.files)} False\n")
    assert "hidden" not in text


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_the_oracle_repairs_and_doing_nothing_does_not(level):
    assert not is_repaired(started(level, 4))
    env = started(level, 4)
    assert is_repaired(env, *repairs(env))
    assert len(repairs(env)) == (2 if level == "hard" else 1)


def test_the_last_turn_submits():
    env = started("easy")
    for repair in repairs(env):
        env.step(repair)
    for _ in range(10):
        _, _, over, *_ = env.step(call("list_files"))
        assert not over
    text, reward, over, truncated, info = env.step("no call")
    assert (reward, over, truncated, info["illegal"], info["success"]) == (
        1,
        True,
        False,
        True,
        True,
    )
    assert info["passed"] == info["total"] == len(package(info["package"]).cases)
    assert "that is not JSON" in text


FOLDER = Folder({"a/b.py": "x = 1\ny = 2\nx = 1\n", "c": ""})


def test_an_edit_needs_a_text_that_occurs_once():
    text, after = FOLDER.edit_file("a/b.py", "y = 2\n", "")
    assert (text, after.files["a/b.py"]) == ("wrote a/b.py (2 lines)", "x = 1\nx = 1\n")
    assert FOLDER.files["a/b.py"] == "x = 1\ny = 2\nx = 1\n"
    for old, count in (("x = 1", 2), ("z", 0), ("", 0)):
        with pytest.raises(ValueError, match=f"occurs {count} times"):
            FOLDER.edit_file("a/b.py", old, "")
    with pytest.raises(ValueError, match="there is no file"):
        FOLDER.edit_file("b.py", "x", "")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/etc/x", "no relative path"), ("../x", "no relative path"), ("a//b", "no relative path"),
        ("", "no relative path"), ("a\0b", "no relative path"), ("a/./b", "no relative path"),
        ("x" * 101, "no relative path"), ("a", "is a folder"), ("c/d", "lies in a file"),
    ],
)  # fmt: skip
def test_a_file_has_a_relative_path(path, reason):
    with pytest.raises(ValueError, match=reason):
        FOLDER.write_file(path, "")


def test_a_folder_has_a_largest_size():
    with pytest.raises(ValueError, match="characters"):
        FOLDER.write_file("d", "x" * 200_001)
    folder = FOLDER
    for number in range(38):
        _, folder = folder.write_file(f"f{number}", "")
    with pytest.raises(ValueError, match="files"):
        folder.write_file("f38", "")


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("I look at it.", "that is not JSON"),
        ("[]", "a reply has one call, got 0"),
        (f"[{call('submit')}, {call('submit')}]", "a reply has one call, got 2"),
        (call("delete_file", path="x"), "there is no tool 'delete_file'"),
        (call("view_file"), "the arguments lack path"),
        (call("view_file", path="x", first="1"), "'first' should be of type integer"),
        (call("view_file", path="none.py"), "there is no file 'none.py'"),
        (call("edit_file", path="\ud800", old="", new=""), "there is no file"),
    ],
)
def test_a_call_that_is_not_valid_uses_up_a_turn(action, reason):
    env = started()
    before = env.folder
    text, _, over, _, info = env.step(action)
    assert text.startswith("Error: ")
    assert reason in text
    assert text.endswith("Turns left: 15")
    assert (over, info["illegal"], env.folder) == (False, True, before)


def test_tests_and_programs_see_the_files_as_they_are_and_change_nothing():
    env = started()
    name = env.task.package
    env.step(call("write_file", path=f"{name}/extra.py", text="value = 6 * 7\n"))
    files = env.folder.files
    program = f"from {name}.extra import value\nprint(value)\nopen('new', 'w')\n1 / 0\n"
    text, *_ = env.step(call("run_python", source=program))
    assert text.startswith("42\nTraceback")
    # Neither the folder of the sandbox nor times may differ between episodes.
    assert 'File "program.py", line 4, in <module>' in text
    text, *_ = env.step(call("run_tests"))
    assert "Ran " in text
    assert " in 0." not in text
    assert env.folder.files == files


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_splits_have_no_bug_in_common_at_any_level(level):
    test = {bug for combination in choices(level, "test") for bug in combination}
    for other in ("easy", "medium", "hard"):
        train = {bug for combination in choices(other, "train") for bug in combination}
        assert not test & train
    assert test
    # A task that is drawn belongs to its split.
    rng = np.random.default_rng(0)
    assert all({*drawn_task(level, "test", rng).bugs} <= test for _ in range(50))


def test_an_issue_shows_statements_the_wrong_result_and_the_true_one():
    rng = np.random.default_rng(0)
    task = drawn_task("easy", "all", rng)
    shown = [one for one in task.bugs[0].shown if one.result.splitlines()[0] in task.text]
    assert shown
    assert f"from {task.package} import" in task.text
    case = package(task.package).cases[shown[0].case]
    assert case[shown[0].example].source.splitlines()[0] in task.text
    # With two bugs, only the true result is certain.
    assert "It gives" not in drawn_task("hard", "all", rng).text
