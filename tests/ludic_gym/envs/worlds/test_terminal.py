"""Terminal: tasks, the machine between commands, and a checker that the player cannot reach."""

import numpy as np
import pytest

from ludic_gym.envs.worlds.shell.task import (
    FILE,
    FOLDER,
    Entry,
    Home,
    Task,
    faults,
    home_of,
    judge,
)
from ludic_gym.envs.worlds.terminal import FAMILIES, TerminalEnv

TASK = Task(
    text="Move a to b, and make c executable.",
    files={"x/a": "one\n", "x/c": "two\n", "x/d": "three\n"},
    want={"x/b": "one\n"},
    absent=("x/a",),
    want_modes={"x/c": 0o755},
    solution="",
)


def home(**changes):
    """The home folder after the task, with some entries changed or (None) left out."""
    entries = {
        "x": Entry(FOLDER, 0o755),
        "x/b": Entry(FILE, 0o644, b"one\n"),
        "x/c": Entry(FILE, 0o755, b"two\n"),
        "x/d": Entry(FILE, 0o644, b"three\n"),
    }
    entries |= {f"x/{name}": entry for name, entry in changes.items()}
    return Home({path: entry for path, entry in entries.items() if entry})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, []),
        # A line break at the end is no difference, another file is none, a white space is one.
        ({"b": Entry(FILE, 0o644, b"one"), "new": Entry(FILE, 0o644)}, []),
        ({"b": Entry(FILE, 0o644, b"one \n")}, ["x/b has another content"]),
        ({"b": None}, ["x/b is missing"]),
        ({"a": Entry(FILE, 0o644, b"one\n")}, ["x/a still exists"]),
        ({"c": Entry(FILE, 0o644, b"two\n")}, ["x/c has the mode 644"]),
        ({"d": None}, ["x/d is missing"]),
        ({"d": Entry(FILE, 0o600, b"three\n")}, ["x/d has the mode 600"]),
        ({"b": Entry("link", 0, b"c")}, ["x/b is missing"]),
    ],
)
def test_faults_of_final_files(changes, fault):
    assert faults(TASK, home(**changes), (), ()) == fault


def test_outputs_of_runs_and_git_are_compared():
    task = Task(
        text="", files={}, solution="",
        runs=(((("bash", "x"), "1\n"), "2\n"),), git=((("x", (("log",),)), "a"),),
    )  # fmt: skip
    assert faults(task, Home(), ("2",), ("a\n",)) == []
    assert faults(task, Home(), ("3",), ("a",)) == ["bash x prints something else"]
    assert faults(task, Home(), ("2",), ("b",)) == ["the repository x is in another state"]


def started(task):
    """An env at the start of a task."""
    env = TerminalEnv("easy")
    env.reset(seed=0)
    env.tasks, env.home = (task,), home_of((task,))
    return env


def is_done(env, *commands):
    for command in commands:
        env.step(f"```bash\n{command}\n```")
    *_, info = env.step("done")
    return info["success"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_solution_of_each_family_is_right_and_doing_nothing_is_not(family):
    rng = np.random.default_rng(3)
    task = FAMILIES[family][4](f"{family}-folder", rng)
    assert not is_done(started(task), "true")
    assert is_done(started(task), task.solution)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_every_solution_is_right_and_doing_nothing_is_not(seed):
    assert sum(map(len, FAMILIES.values())) >= 60
    for makers in FAMILIES.values():
        for maker in makers:
            task = maker("folder", np.random.default_rng(seed))
            assert not is_done(started(task), "true"), task.text
            assert is_done(started(task), task.solution), task.text


def test_the_working_directory_and_files_last_and_processes_do_not():
    env = started(TASK)
    env.step("$ mkdir -p deep/er; cd deep/er; sleep 1000 & echo hi > file; chmod 400 file; X=1")
    text, *_ = env.step("$ pwd | sed s,^.*/home,,; cat file; stat -c %a file; echo x$X; jobs")
    assert text.splitlines() == ["/deep/er", "hi", "400", "x"]


def test_an_error_is_shown_and_files_that_are_too_large_are_undone():
    env = started(TASK)
    text, *_ = env.step("$ ls nothing")
    assert "No such file" in text
    assert "(exit code 2)" in text
    text, *_ = env.step("$ head -c 500000 /dev/zero > big")
    assert "the command is undone" in text
    assert "big" not in env.home.entries


def test_a_player_who_attacks_the_machine_only_loses_the_command():
    env = started(TASK)
    text, *_ = env.step("$ kill -9 $PPID")
    assert "it is undone" in text
    # A hook, an alias and a filter of the repository must not run in the checker's sandbox.
    task = FAMILIES["git"][0]("folder", np.random.default_rng(0))
    env = started(task)
    forged = (
        "cd ~/folder; git config core.fsmonitor 'echo forged'; git config alias.log '!echo forged';"
        "git config core.pager 'echo forged'; git config diff.external 'echo forged'"
    )
    assert not is_done(env, forged)
    assert is_done(started(task), task.solution, forged)


def test_a_program_that_forges_the_checkers_report_changes_nothing_else():
    # The service's program writes a report of its own in place of the driver's and ends that.
    report = '{"output": "", "code": 0, "cwd": ".", "runs": [["2", 0]], "git": [], "entries": {}}'
    text = f"echo '{report}' > /proc/$PPID/fd/1; kill -9 $PPID\n"
    task = Task(text="", files={"a": "1\n"}, solution="", runs=(((("bash", "x"), ""), "3\n"),))
    env = started(TASK)
    forged = Home({"x": Entry(FILE, 0o644, text.encode()), "a": Entry(FILE, 0o644, b"2\n")})
    found = judge(env.run, forged, (task, TASK))
    assert found[0] == ["a has another content", "bash x prints something else"]
    assert "x/b is missing" in found[1]


@pytest.mark.parametrize("text", ["", "```", "rm -r x", "I would now remove the folder.", "done?"])
def test_a_sentence_is_not_executed(text):
    env = started(TASK)
    before = env.home
    seen, _, over, _, info = env.step(text)
    forms = 'commands in a ```bash block, with one command after "$ ", or with done'
    assert seen == f"That is no command. Reply with {forms}."
    assert (over, info["illegal"], env.home) == (False, True, before)
