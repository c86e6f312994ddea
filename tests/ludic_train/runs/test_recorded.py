"""Episodes that runs keep: those of a trainer that plays itself, and of one with an actor."""

import subprocess

import forked
import pytest

from ludic_gym.recorder import read_recorded
from ludic_gym.view.page import view_of

# REINFORCE learns from equal rewards too, and so from those of a model that has imitated little.
SMALL = ["tic-tac-toe", "--demonstrations", "300", "--sft-updates", "4", "--algo", "reinforce"]
SMALL += ["--updates", "4", "--groups", "2", "--group-size", "4", "--minibatches", "2"]
SMALL += ["--eval-every", "6", "--eval-episodes", "4", "--final-episodes", "4", "--device", "cpu"]


def start(*words):
    command = ["-m", "ludic_gym", *map(str, words)]
    return forked.Python(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process):
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output


def kept(out):
    return list(read_recorded(out / "rollouts"))


@pytest.mark.long
def test_a_run_keeps_the_episodes_of_its_updates_and_evaluations(tmp_path):
    finish(start("train", *SMALL, "--out", tmp_path))
    trained = [one for one in kept(tmp_path) if one.use == "train"]
    # Two batches of two groups of four; each makes two updates, after the four of imitation.
    assert [one.update for one in trained] == [5] * 8 + [7] * 8
    versions = {
        (one.update, completion.policy_version)
        for one in trained
        for step in one.episode.rollouts[0].steps
        for completion in step.decision.completions
    }
    assert versions == {(5, 0), (7, 2)}
    for one in trained:
        (rollout,), (weights,) = one.episode.rollouts, one.weights
        assert len(weights) == len(rollout.steps)
    evaluated = [one.update for one in kept(tmp_path) if one.use == "evaluate"]
    # Four sets of four tasks.
    assert evaluated == [0] * 16 + [4] * 16 + [8] * 16


@pytest.mark.long
def test_a_run_that_records_nothing_has_no_files(tmp_path):
    finish(start("train", *SMALL, "--out", tmp_path, "--record", 0))
    assert not (tmp_path / "rollouts").exists()


@pytest.mark.long
def test_episodes_of_an_actor_have_the_update_and_the_credit_of_the_trainer(tmp_path):
    out, queue = tmp_path / "run", f"file://{tmp_path / 'queue.db'}"
    trainer = start("train", *SMALL, "--out", out, "--queue", queue)
    actor = start("launch", "--only", "actor", out, "--concurrency", 8)
    finish(trainer)
    finish(actor)
    names = {path.name.split("-")[0] for path in (out / "rollouts").iterdir()}
    assert names == {"000001.jsonl.gz", "actor"}
    trained = [one for one in kept(out) if one.use == "train" and one.update is not None]
    assert sorted(one.update for one in trained) == [5] * 8 + [7] * 8
    for one in trained:
        (rollout,), (weights,) = one.episode.rollouts, one.weights
        assert len(weights) == len(rollout.steps)
    # The page has what no update was made from, too.
    columns = view_of([out])["runs"][0]["columns"]
    assert len(columns["nth"]) == len(kept(out))
