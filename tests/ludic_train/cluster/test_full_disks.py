"""A disk that is full or read-only ends a trainer in one line; the next one loses nothing."""

import subprocess
import time

import forked
import pytest
from faults.scene import BATCH, UPDATES, assert_undisturbed, push
from redis_server import needs_redis

from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.loggers.loggers import read_metrics

pytestmark = needs_redis
# REINFORCE learns from equal rewards too, and so from those of a model that has imitated little.
SMALL = ["tic-tac-toe", "--demonstrations", "300", "--sft-updates", "4", "--algo", "reinforce"]
SMALL += ["--updates", "8", "--groups", "2", "--group-size", "4", "--minibatches", "2"]
SMALL += ["--eval-every", "4", "--eval-episodes", "4", "--final-episodes", "4"]
SAVED, PUBLISHED = "checkpoints", "published"
FULL = "No space left on device; make room there"
READ_ONLY = "Read-only file system; make it writable, or name another folder"


@pytest.mark.parametrize(
    ("part", "fault", "reason"),
    [
        pytest.param(SAVED, "fill", FULL, id="no room for a checkpoint"),
        pytest.param(PUBLISHED, "make_read_only", READ_ONLY, id="published params read-only"),
        pytest.param(
            PUBLISHED, "fill", FULL, id="no room for published params", marks=pytest.mark.slow
        ),
        pytest.param(
            SAVED, "make_read_only", READ_ONLY, id="checkpoints read-only", marks=pytest.mark.slow
        ),
    ],
)
async def test_a_disk_that_takes_no_more_ends_a_trainer_and_costs_nothing(
    scene, disk, undisturbed, part, fault, reason
):
    (disk.folder / part).mkdir()
    (scene.folder / part).symlink_to(disk.folder / part)
    await push(scene.queue, *range(7))
    pid = scene.train()
    await scene.at_version(3)
    getattr(disk, fault)()
    await push(scene.queue, *range(7, UPDATES * BATCH))
    assert await scene.processes.end(pid) == 1
    error = "CheckpointError" if part == SAVED else "PublishError"
    last = (scene.folder / "log").read_text().splitlines()[-1]
    assert last.startswith(f"ludic_train.errors.{error}: cannot write {scene.folder / part}")
    assert reason in last
    assert CheckpointManager(scene.folder / SAVED).load().step == 2
    # Nothing half written keeps the room that the next start needs.
    left = {path.name for path in (disk.folder / part).iterdir()}
    assert not any(name.endswith(".incomplete") for name in left)
    disk.mend()
    await scene.finished(scene.train())
    await assert_undisturbed(scene, undisturbed)


@pytest.mark.slow
def test_the_commands_end_in_one_line_and_resume(redis_server, disk, tmp_path):
    out, queue = tmp_path / "run", ["--queue", redis_server.url]
    out.mkdir()
    (disk.folder / PUBLISHED).mkdir()
    (out / PUBLISHED).symlink_to(disk.folder / PUBLISHED)
    trainer = start("train", *SMALL, *queue, "--out", str(out))
    actor = start("launch", "--only", "actor", str(out))
    try:
        wait_for_update(out, 5, trainer)
        disk.make_read_only()
        output, _ = trainer.communicate(timeout=120)
        assert trainer.returncode == 2, output
        assert "Traceback" not in output
        last = output.splitlines()[-1]
        assert last.startswith(f"ludic: cannot write {out / PUBLISHED}/v0")
        assert last.endswith(READ_ONLY)
        disk.mend()
        resumed = start("train", "--resume", *queue, "--out", str(out))
        output, _ = resumed.communicate(timeout=120)
        assert resumed.returncode == 0, output
    finally:
        actor.terminate()
        output, _ = actor.communicate(timeout=60)
    assert actor.returncode == 0, output
    assert "Traceback" not in output
    assert read_metrics(out / "metrics.jsonl")[-1]["update"] == 12


def start(*words):
    command = ["-m", "ludic_gym", *words]
    return forked.Python(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def wait_for_update(out, update, process):
    metrics = out / "metrics.jsonl"
    for _ in range(1200):
        if process.poll() is not None:
            pytest.fail(f"ended before update {update}: {process.communicate()[0]}")
        if metrics.exists() and f'"update": {update},' in metrics.read_text():
            return
        time.sleep(0.1)
    pytest.fail(f"update {update} never came")
