"""Runs of `ludic train` in processes of their own: stopped, killed, gone on with."""

import json
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import forked
import pytest
from made_once import made_once

from ludic_gym.recorder import read_recorded
from ludic_train.checkpoints.layout import complete_updates
from ludic_train.loggers.loggers import read_metrics
from ludic_train.recipes.catalog import TIC_TAC_TOE
from ludic_train.runs.folder import open_run

# REINFORCE learns from equal rewards too, and so from those of a model that has imitated little.
SMALL = ["tic-tac-toe", "--demonstrations", "300", "--sft-updates", "4", "--algo", "reinforce"]
SMALL += ["--updates", "8", "--groups", "4", "--eval-every", "4", "--eval-episodes", "8"]
SMALL += ["--final-episodes", "8"]


def start(out: Path, *options: str) -> forked.Python:
    return forked.Python(
        ["-m", "ludic_gym", "train", *SMALL, "--out", str(out), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finish(process: forked.Python) -> str:
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    return output


def wait_for_update(out: Path, update: int, process: forked.Python) -> None:
    for _ in range(2400):
        if process.poll() is not None:
            pytest.fail(f"ended before update {update}: {process.communicate()[0]}")
        metrics = out / "metrics.jsonl"
        if metrics.exists() and f'"update": {update},' in metrics.read_text():
            return
        time.sleep(0.1)
    pytest.fail(f"update {update} never came")


def learned(out: Path) -> tuple[bytes, dict[str, float]]:
    """The final params, to the bit, and what the policy achieved."""
    params = (out / "model" / "model.safetensors").read_bytes()
    return params, json.loads((out / "results.json").read_text())


def recorded(out: Path) -> Counter:
    """The number of times that each episode was kept for each update."""
    kept = read_recorded(out / "rollouts")
    return Counter((one.update, one.use, one.episode.task.seed) for one in kept)


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    return made_once(tmp_path_factory, "straight", lambda out: finish(start(out)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("update", "signum"),
    [pytest.param(3, signal.SIGTERM, marks=pytest.mark.slow), (7, signal.SIGINT)],
)
def test_a_run_that_is_asked_to_stop_goes_on_bit_for_bit(straight, tmp_path, update, signum):
    out = tmp_path / "stopped"
    process = start(out)
    wait_for_update(out, update, process)
    process.send_signal(signum)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert f"--out {out} --resume" in output.replace("\n", " ")
    finish(start(out, "--resume"))
    assert learned(out) == learned(straight)


@pytest.mark.long
def test_a_killed_run_goes_on_bit_for_bit_from_its_last_checkpoint(straight, tmp_path):
    out = tmp_path / "killed"
    process = start(out)
    wait_for_update(out, 9, process)
    process.kill()
    process.communicate()
    finish(start(out, "--resume"))
    assert learned(out) == learned(straight)
    assert recorded(out) == recorded(straight)


def test_ctrl_c_before_the_first_checkpoint_leaves_nothing_in_the_way_of_the_next_start(tmp_path):
    out = tmp_path / "early"
    # Its first checkpoint is far off.
    process = start(out, "--sft-updates", "400", "--eval-every", "400")
    while not (out / "config.toml").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert "start it again with the same command" in output
    open_run(TIC_TAC_TOE, TIC_TAC_TOE.defaults.changed(out=out), resume=False)


@pytest.mark.slow
def test_a_run_on_a_full_disk_ends_in_one_line_and_goes_on_bit_for_bit(straight, disk):
    out = disk.folder / "run"
    process = start(out)
    wait_for_update(out, 5, process)
    disk.fill()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2, output
    assert "Traceback" not in output
    last = output.splitlines()[-1]
    assert last.startswith(f"ludic: cannot write {out}")
    assert "No space left on device; make room there, " in last
    assert complete_updates(out / "checkpoints") == [4]
    # Still full: no file of the run is lost by a start that fails.
    process = start(out, "--resume")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2, output
    assert "No space left on device; make room there" in output.splitlines()[-1]
    assert "Traceback" not in output
    disk.mend()
    finish(start(out, "--resume"))
    assert learned(out) == learned(straight)
    updates = [record["update"] for record in read_metrics(out / "metrics.jsonl")]
    assert updates == list(range(13))


def test_a_run_needs_a_folder_that_can_be_written(disk, tmp_path):
    (tmp_path / "file").touch()
    disk.make_read_only()
    for out, reason in (
        (tmp_path / "file" / "run", "Not a directory"),
        (disk.folder / "run", "Read-only file system"),
    ):
        output, _ = (process := start(out)).communicate(timeout=60)
        assert process.returncode == 2, output
        assert output.splitlines()[-1].startswith(f"ludic: cannot write {out}: {reason}; ")
        assert "Traceback" not in output


def test_a_run_leaves_all_there_is_to_look_at(straight):
    names = {path.name for path in straight.iterdir()}
    assert names == {
        "checkpoints",
        "compute.json",
        "config.toml",
        "curve.png",
        "games.txt",
        "metrics.jsonl",
        "model",
        "harness.json",
        "chat_profile.json",
        "results.json",
        "rollouts",
    }
    assert "ludic/TicTacToe-v0" in (straight / "games.txt").read_text()
