"""Recorded episodes, graded again."""

import json
from dataclasses import replace

import gymnasium as gym
import pytest

from ludic_gym.commands.main import main
from ludic_gym.recorder import ROLLOUTS, Recorder
from ludic_gym.types import Decision, Episode, Rollout, Step, Task
from ludic_gym.view.regrade import Left, Regraded, regrade

SUMS = "ludic/Arithmetic-v0"


@pytest.fixture
def results(tmp_path):
    """Four tasks, the oracle's answers."""
    words = ["--policy", "oracle", "--episodes", "4", "--out", str(tmp_path / "results")]
    assert main(["bench", SUMS, *words]) == 0
    return tmp_path / "results"


def record(folder, line, change):
    """Change a line of the results, as if the grader had been another one."""
    path = folder / "ludic-Arithmetic-v0.jsonl"
    lines = path.read_text().splitlines()
    value = json.loads(lines[line])
    change(value["rollouts"][0]["steps"][-1])
    lines[line] = json.dumps(value)
    path.write_text("\n".join(lines) + "\n")


def reject(step):
    step["reward"] = 0.0
    step["info"]["success"] = False


def test_grades_of_the_same_grader_stay(results):
    grades = list(regrade([results]))
    assert [(one.before, one.after, one.is_changed) for one in grades] == [(1.0, 1.0, False)] * 4


def test_a_changed_grade_is_listed_with_its_reply(results, capsys):
    record(results, 2, reject)
    capsys.readouterr()
    assert main(["view", str(results), "--regrade"]) == 0
    headings, row, summary = capsys.readouterr().out.splitlines()
    assert headings.split() == ["episode", "environment", "seed", "before", "now", "reply"]
    cells = row.split()
    assert cells[:3] == ["ludic-Arithmetic-v0.jsonl:3", SUMS, "2"]
    assert cells[3:6] == ["0", "1", "success"]
    assert len(cells) >= 7
    assert summary == "1 of 4 grades changed"


def test_changed_grades_are_json_too(results, capsys):
    record(results, 0, reject)
    capsys.readouterr()
    main(["view", str(results), "--regrade", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["summary"] == "1 of 4 grades changed"
    assert [(one["before"], one["now"]) for one in report["changed"]] == [("0", "1 success")]


def test_a_task_that_begins_otherwise_is_left(results):
    record(results, 1, lambda step: step.update(observation="1 + 1?"))
    grades = list(regrade([results]))
    assert grades[1] == Left(
        place="ludic-Arithmetic-v0.jsonl:2", reason="the task begins otherwise"
    )
    assert [type(one) for one in grades].count(Regraded) == 3


def test_episodes_of_a_run_are_graded_again_and_others_left(tmp_path):
    task = Task(env_id=SUMS, seed=7)
    # A reply that was a parse failure keeps the parser's reward: no grader saw it.
    first, _ = gym.make(SUMS).reset(seed=7)
    unread = Step(
        observation=first,
        decision=Decision(action=None, reward=-0.5),
        reward=-0.5,
        terminated=True,
        info={"parse_error": True, "success": False},
    )
    rollout = Rollout(task=task, steps=(unread,))
    unseeded = replace(task, seed=None)
    judged = replace(unread, info={"rule/steps": "judge", "success": True}, reward=2.0)
    episodes = [
        Episode(index=0, task=task, rollouts=(rollout,)),
        Episode(index=1, task=task, rollouts=(rollout, rollout)),
        Episode(index=2, task=task, error="it broke", blame="environment"),
        Episode(index=3, task=task, rollouts=(replace(rollout, steps=(judged,)),)),
        Episode(index=4, task=unseeded, rollouts=(replace(rollout, task=unseeded),)),
    ]
    Recorder(tmp_path / ROLLOUTS).write(episodes, use="train", update=3)
    kept, *left = regrade([tmp_path])
    assert (kept.before, kept.after, kept.is_changed) == (-0.5, -0.5, False)
    assert kept.place == "update 3, train"
    reasons = ["several agents", "failed", "graded by a rubric", "no seed"]
    assert [one.reason for one in left] == reasons
