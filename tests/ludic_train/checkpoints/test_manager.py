import json
import math
import shutil
import signal
import subprocess
import time
from pathlib import Path

import forked
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from ludic_gym.errors import ConfigError
from ludic_train.checkpoints.manager import (
    CheckpointManager,
    optimizer_tensors,
    restore_optimizer,
    restore_rng,
    rng_state,
)
from ludic_train.errors import CheckpointError, CheckpointNotFound, Superseded


def write_model(directory: Path) -> None:
    (directory / "config.json").write_text("{}")


def save(manager, step, value=0.0, state=None):
    tensors = {"x": torch.full((3,), value)}
    return manager.save(step, write_model=write_model, tensors=tensors, state=state or {"n": step})


def names(directory):
    return sorted(path.name for path in Path(directory).iterdir() if path.name != ".owner")


def test_what_was_saved_is_loaded(tmp_path):
    state = {"version": 7, "lr": 0.1 + 0.2, "source": {"cursor": [1, 2]}, "note": "é"}
    path = save(CheckpointManager(tmp_path), 7, 0.1, state)
    assert names(tmp_path) == ["step_00000007"]
    assert names(path) == ["model", "optimizer.safetensors", "state.json"]
    record = json.loads((path / "state.json").read_text())
    assert record == {"schema": 2, "step": 7, "state": state}
    assert set(load_file(path / "optimizer.safetensors")) == {"x"}
    loaded = CheckpointManager(tmp_path).load("latest")
    assert (loaded.path, loaded.step, loaded.state) == (path, 7, state)
    assert torch.equal(loaded.tensors["x"], torch.full((3,), 0.1))
    assert (loaded.model_dir / "config.json").is_file()


def test_the_oldest_go_after_a_new_one_is_complete(tmp_path):
    manager = CheckpointManager(tmp_path, keep_last=2)
    for step in (1, 2, 3):
        save(manager, step)
    assert manager.steps() == [2, 3]
    assert names(tmp_path) == ["step_00000002", "step_00000003"]


def test_killed_while_an_old_one_is_removed_it_no_longer_looks_complete(tmp_path, monkeypatch):
    manager = CheckpointManager(tmp_path, keep_last=1)
    save(manager, 1)

    def killed(path):
        (path / "optimizer.safetensors").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        save(manager, 2)
    assert manager.steps() == [2]


def test_a_save_that_fails_keeps_the_old_ones_and_is_cleaned_up_by_the_next(tmp_path):
    manager = CheckpointManager(tmp_path, keep_last=1)
    save(manager, 1)

    def fails(directory):
        (directory / "half").write_text("x")
        raise OSError("disk full")

    with pytest.raises(CheckpointError, match=r"cannot write .*disk full"):
        manager.save(2, write_model=fails, tensors={}, state={})
    assert manager.load().step == 1
    save(manager, 3)
    assert names(tmp_path) == ["step_00000003"]


def test_nothing_is_overwritten(tmp_path):
    manager = CheckpointManager(tmp_path)
    save(manager, 5)
    for step in (5, 4):
        with pytest.raises(CheckpointError, match=f"step {step}.*directory of its own"):
            save(manager, step)


def test_a_trainer_whose_place_was_taken_saves_nothing_any_more(tmp_path):
    elder, younger = CheckpointManager(tmp_path), CheckpointManager(tmp_path)
    save(elder, 1)
    younger.claim()
    assert younger.load().step == 1
    with pytest.raises(Superseded, match="another trainer"):
        save(elder, 2)
    save(younger, 2)
    assert younger.steps() == [1, 2]


def test_a_trainer_whose_place_is_taken_while_it_saves_leaves_the_place(tmp_path):
    elder, younger = CheckpointManager(tmp_path), CheckpointManager(tmp_path)
    save(elder, 1)

    def taken(directory):
        write_model(directory)
        younger.claim()
        # It removes what is half written, and comes to the same step.
        save(younger, 2, 0.5)

    with pytest.raises(Superseded):
        elder.save(2, write_model=taken, tensors={}, state={})
    assert torch.equal(younger.load().tensors["x"], torch.full((3,), 0.5))

    def claimed(directory):
        elder.claim()
        write_model(directory)

    # Without a trace of the half that was written.
    with pytest.raises(Superseded):
        younger.save(3, write_model=claimed, tensors={}, state={})
    save(elder, 3)
    assert names(tmp_path) == ["step_00000002", "step_00000003"]


def test_an_exact_path_is_taken_or_refused_never_replaced(tmp_path):
    manager = CheckpointManager(tmp_path)
    save(manager, 1)
    save(manager, 2)
    assert manager.load(tmp_path / "step_00000001").step == 1
    with pytest.raises(CheckpointNotFound, match=r"_00000003;.* has step_00000001, step_00000002"):
        manager.load(tmp_path / "step_00000003")


def test_a_torn_checkpoint_is_ignored_and_named_where_there_is_nothing_else(tmp_path):
    (tmp_path / "step_00000004.incomplete").mkdir()
    (tmp_path / "step_00000004.incomplete" / "state.json").write_text("{}")
    (tmp_path / "step_00000005").mkdir()
    manager = CheckpointManager(tmp_path)
    with pytest.raises(CheckpointNotFound, match=r"step_00000004\.incomplete, step_00000005"):
        manager.load("latest")
    with pytest.raises(CheckpointNotFound):
        manager.load(tmp_path / "step_00000004.incomplete")
    save(manager, 3)
    assert manager.load("latest").step == 3


def test_an_empty_or_missing_directory_has_no_latest_and_one_is_kept_at_least(tmp_path):
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(CheckpointNotFound, match=str(directory)):
            CheckpointManager(directory).load("latest")
    with pytest.raises(ConfigError, match="0"):
        CheckpointManager(tmp_path, keep_last=0)


@pytest.mark.parametrize(
    ("name", "content"),
    [("state.json", "{"), ("optimizer.safetensors", "short"), ("state.json", '{"schema": 99}')],
)
def test_a_damaged_checkpoint_is_an_error_not_another_checkpoint(tmp_path, name, content):
    manager = CheckpointManager(tmp_path)
    save(manager, 1)
    (save(manager, 2) / name).write_text(content)
    with pytest.raises(CheckpointError, match="step_00000002"):
        manager.load("latest")


@pytest.mark.parametrize("state", [{"loss": math.nan}, {"path": Path("x")}])
def test_a_state_that_json_cannot_hold_is_refused_before_anything_is_written(tmp_path, state):
    with pytest.raises(CheckpointError, match="JSON"):
        save(CheckpointManager(tmp_path), 1, state=state)
    assert names(tmp_path) == []


def test_optimizer_state_of_another_model_is_refused():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(16, 4)).mean().backward()
    optimizer.step()
    tensors = optimizer_tensors(optimizer, model)
    other = nn.Sequential(nn.Linear(4, 9), nn.Dropout(0.5), nn.Linear(9, 1))
    with pytest.raises(CheckpointError, match=r"0\.weight is \[8, 4\].*\[9, 4\]"):
        restore_optimizer(torch.optim.AdamW(other.parameters()), other, tensors)
    small = nn.Sequential(nn.Linear(4, 8))
    with pytest.raises(CheckpointError, match=r"2\.bias"):
        restore_optimizer(torch.optim.AdamW(small.parameters()), small, tensors)
    with pytest.raises(CheckpointError, match="no parameters"):
        optimizer_tensors(optimizer, small)


@pytest.mark.skipif(torch.cuda.is_available(), reason="refused only where there is no device")
def test_the_random_state_of_a_missing_device_is_refused():
    with pytest.raises(CheckpointError, match="CUDA"):
        restore_rng({**rng_state(), "cuda": "AA=="})


SAVES_FOREVER = """
import sys, torch
from pathlib import Path
from ludic_train.checkpoints.manager import CheckpointManager

def write_model(directory):
    for i in range(20):
        (directory / f"part{i}").write_bytes(bytes(50_000))

manager = CheckpointManager(Path(sys.argv[1]), keep_last=2)
for step in range(manager.steps()[-1] + 1 if manager.steps() else 1, 10**6):
    tensors = {"x": torch.full((200_000,), float(step))}
    manager.save(step, write_model=write_model, tensors=tensors, state={"n": step})
    print(step, flush=True)
"""


def saved_until_killed(directory, after_s):
    """The last step that the child knew to be saved when it was killed."""
    child = forked.Python(["-c", SAVES_FOREVER, str(directory)], stdout=subprocess.PIPE)
    first = child.stdout.readline()
    time.sleep(after_s)
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate()
    return int((first + rest).split()[-1])


@pytest.mark.parametrize("after_s", [0.05, 0.31])
def test_killed_in_the_middle_of_a_save_the_last_complete_one_is_intact(tmp_path, after_s):
    for attempt in range(2):
        known = saved_until_killed(tmp_path, after_s + 0.013 * attempt)
        loaded = CheckpointManager(tmp_path).load("latest")
        assert loaded.step >= known
        assert loaded.state == {"n": loaded.step}
        assert torch.equal(loaded.tensors["x"], torch.full((200_000,), float(loaded.step)))
        assert sum(p.stat().st_size for p in loaded.model_dir.iterdir()) == 20 * 50_000
    save(CheckpointManager(tmp_path), 10**6)
    assert not list(tmp_path.glob("*.incomplete"))
